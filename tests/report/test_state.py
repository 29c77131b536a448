"""Whether something is as it was made has one answer for explain, verify and publish."""

import pytest
from small_run import CODE_NOW, FIGURE, TABLE, small_run, spec_of

from dpatlas.commands import verify
from dpatlas.errors import InputError
from dpatlas.report import lineage, state
from dpatlas.report.publish import Expected, publish

pytestmark = pytest.mark.usefixtures("code_as_made")
IDS = tuple(spec_of(depth=depth).id for depth in (2, 4))
EXPECTED = Expected("embedded", {FIGURE: IDS}, {TABLE: IDS[:1]}, ("kl_privacy",))
RECORD = f"runs/kl_privacy/{IDS[1]}/record.json"


def answers(run):
    """What the three say: explain's trace, verify's lines, and what publish refuses, if it does."""
    figure = lineage.trace(run / f"figures/{FIGURE}.csv")
    try:
        publish(EXPECTED, run.parent, run.parents[1] / "docs", None)
        refused = ""
    except InputError as error:
        refused = str(error)
    lines = [line for line in verify.differences(run) if not line.startswith("manifest.txt")]
    return figure, lines, refused


def test_a_run_as_it_was_made_is_so_for_all(tmp_path):
    figure, lines, refused = answers(small_run(tmp_path / "results", data=None))
    assert figure["as_made"] and all(record["as_used"] for record in figure["records"])
    assert (lines, refused) == ([], "")


@pytest.mark.parametrize("name", [f"figures/{FIGURE}.csv", RECORD])
def test_a_changed_file_is_changed_for_all(tmp_path, name):
    run = small_run(tmp_path / "results", data=None)
    path = run / name
    path.write_text(path.read_text().replace("0.5", "0.6") + "\n")
    figure, lines, refused = answers(run)
    asked = figure if name.endswith("csv") else figure["records"][1]
    assert asked["as_made" if name.endswith("csv") else "as_used"] is False
    assert any(line.startswith(f"{name}: sha256") for line in lines)
    assert name in refused and "other content" in refused


def test_code_that_is_gone_has_no_digest(monkeypatch):
    monkeypatch.undo()
    assert state.digest_now("dpatlas.no.such.module") is None
    assert state.as_made(CODE_NOW, None) is False
