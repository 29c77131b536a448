"""The files that are generated of the config's models, and the command that writes them."""

import pytest

from dpatlas.cli import dispatch
from dpatlas.config.load import TIERS, load_config, load_tier, project_root
from dpatlas.config.model import schema_of, walk
from dpatlas.config.reference import MADE_BY, PAGE, SCHEMA, editor_schema, written
from dpatlas.config.root import config_model
from dpatlas.errors import InputError
from dpatlas.registry import all_blocks

ROOT = project_root()


@pytest.mark.parametrize("path", [SCHEMA, PAGE], ids=str)
def test_schema_page_and_code_agree(path):
    assert (ROOT / path).read_text(encoding="utf-8") == written()[path], f"make it again: {MADE_BY}"


def test_the_page_has_a_section_for_every_block_and_a_row_for_every_key():
    schema, text = schema_of(config_model()), written()[PAGE]
    for key in all_blocks():
        section = text.partition(f"## {key}\n")[2].partition("\n## ")[0]
        for place, _, _ in walk(schema, schema["properties"][key]):
            assert f"| `{place}` |" in section, f"{key}.{place}"


def test_only_entries_of_lists_have_to_be_whole_in_a_file_that_is_merged():
    schema = editor_schema()
    required = {place for place, _, needed in walk(schema, schema) if needed}
    assert "dp_sgld.finetune[].backbone" in required
    assert all("[]" in place or place == "kl_privacy.data" for place in required)


@pytest.mark.parametrize("tier", ["embedded", "smoke", "workstation", "paper"])
def test_editors_find_the_schema_of_every_shipped_config(tier):
    path = ROOT / "config.yaml" if tier == "embedded" else ROOT / TIERS / f"{tier}.yaml"
    first = path.read_text(encoding="utf-8").splitlines()[0]
    name = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / name).resolve() == (ROOT / SCHEMA).resolve()


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


def test_the_command_refuses_what_is_no_config(tmp_path):
    change = tmp_path / "mine.yaml"
    change.write_text("kl_privacy: {sigmaa: 1}\n")
    with pytest.raises(InputError, match="did you mean sigma"):
        dispatch(["config", "--config", str(change)])
