"""The files that are generated of the config's models, and the command that writes them."""

import re

import pytest

from dpatlas.base.schema import schema_of, walk
from dpatlas.cli import dispatch
from dpatlas.errors import InputError
from dpatlas_workflow.commands.config import pages
from dpatlas_workflow.config.load import load_config, load_tier
from dpatlas_workflow.config.reference import MADE_BY, PAGE, editor_schema, written
from dpatlas_workflow.config.root import config_model
from dpatlas_workflow.registry import all_blocks


def test_pages_and_models_agree():
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: make it again: {MADE_BY}"


def test_every_block_has_a_page_with_a_row_for_every_key():
    """Of a block that several keys are, at the first of them, which the others name."""
    schema, pages = schema_of(config_model()), written()
    for key, block in all_blocks().items():
        page = pages[block.folder / PAGE]
        elsewhere = dict(re.findall(r"^\| `(\S+)`.* Keys as of `(\S+)`\. \|$", page, re.M))
        for place, _, _ in walk(schema, schema["properties"][key]):
            row = place
            while around := [e for e in elsewhere if row.startswith((f"{e}.", f"{e}["))]:
                outermost = min(around, key=len)
                row = elsewhere[outermost] + row.removeprefix(outermost)
            assert f"| `{row}`" in page, f"{key}.{place}"


def test_only_entries_of_lists_have_to_be_whole_in_a_file_that_is_merged():
    schema = editor_schema()
    required = {place for place, _, needed in walk(schema, schema) if needed}
    assert "dp_sgld.finetune[].backbone" in required
    assert all("[]" in place or place == "kl_privacy.data" for place in required)


@pytest.mark.parametrize("form", ["--schema", "--write"])
@pytest.mark.parametrize("words", [["--tier", "smoke"], ["--config", "config.yaml"]])
def test_what_is_made_of_no_config_is_refused_beside_one(words, form):
    with pytest.raises(InputError, match=f"{words[0]}: found {form} as well"):
        dispatch(["config", *words, form])


def test_the_command_prints_a_config_that_is_one_again(tmp_path, capsys):
    change = tmp_path / "mine.yaml"
    change.write_text("tier: mine\nkl_privacy: {sigma: 1.0e-5}\n")
    for words, expected in (
        (["--tier", "smoke"], load_tier("smoke")),
        (["--config", str(change)], load_config([change])),
    ):
        dispatch(["config", *words])
        again = tmp_path / "again.yaml"
        again.write_text(capsys.readouterr().out)
        assert load_config([again]) == expected
