"""The files that figure and table jobs write."""

import hashlib
import json
import os
import subprocess
import sys

import pytest
from kl_sample_records import depth_sweep

from dpatlas.errors import EXIT_BAD_INPUT, run_command
from dpatlas_workflow.evidence.claims import read_papers
from dpatlas_workflow.show.make import main
from dpatlas_workflow.show.output import INTERVALS_NOTE, to_csv, words_below
from dpatlas_workflow.show.panel import ShownFigure
from dpatlas_workflow.show.tables import Math, Measured, Part, to_markdown, to_tex


def made(tmp_path, tier="trial"):
    return {path.name: path.read_bytes() for path in (tmp_path / tier / "made").iterdir()}


@pytest.mark.parametrize(("name", "kind"), [("kl_vs_width", "figure"), ("kl_constants", "table")])
def test_the_lineage_of_a_job_accounts_for_its_files_and_records(job, tmp_path, name, kind):
    assert main(job(name)) == 0
    files = made(tmp_path)
    lineage = json.loads((tmp_path / "trial" / "lineage" / f"{name}.json").read_text())
    assert lineage["kind"] == kind
    assert "matplotlib" in lineage["versions"]
    assert lineage["outputs"] == {
        file: hashlib.sha256(content).hexdigest() for file, content in files.items()
    }
    for identifier, entry in lineage["records"].items():
        record = (tmp_path / "trial" / entry["path"]).read_bytes()
        assert json.loads(record)["id"] == identifier
        assert entry["sha256"] == hashlib.sha256(record).hexdigest()


def test_another_process_writes_the_same_bytes(job, tmp_path):
    arguments = job("kl_vs_width")
    main(arguments)
    first = made(tmp_path)
    command = [sys.executable, "-m", "dpatlas_workflow.show", *arguments]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert made(tmp_path) == first


def test_bad_input_is_one_line_and_writes_nothing(job, tmp_path, refusal_of):
    whole = job("kl_vs_depth")
    absent = tmp_path / "absent.txt"
    absent.write_text(f"{tmp_path}/runs/absent/record.json\n")
    cases = {
        "no such list": [*whole[:-1], str(tmp_path / "none.txt")],
        "no such record": [*whole[:-1], str(absent)],
        "another module": [whole[0].replace("depth", "time"), *whole[1:]],
        "settings that are no object": [*whole[:4], "[1]", *whole[5:]],
        "too short for the horizon": job("kl_vs_depth", depth_sweep(steps=6), "short"),
    }
    for arguments in cases.values():
        refusal_of(main, *arguments)
    for tier in ("trial", "short"):
        assert not (tmp_path / tier / "made").exists()
        assert not (tmp_path / tier / "lineage").exists()


@pytest.mark.parametrize(
    ("content", "found"), [('{"id": ', "text that is not JSON"), (None, "a record without metrics")]
)
def test_a_torn_record_is_named_with_what_to_do(job, tmp_path, capsys, content, found):
    arguments = job("kl_vs_depth")
    path = sorted(tmp_path.rglob("record.json"))[0]
    whole = json.loads(path.read_text())
    del whole["metrics"]
    path.write_text(json.dumps(whole) if content is None else content)
    for read, given in ((main, arguments), (lambda paths: read_papers({}, paths), [path])):
        assert run_command(read, given) == EXIT_BAD_INPUT
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{path}: found {found}" in line
        assert "can be deleted, and snakemake makes it again" in line


def below(row, notes):
    """The lines below a figure with this row and these notes."""
    return words_below(ShownFigure([], tuple(row), [row | {"runs": ["x"]}], notes), "trial")


def test_a_figure_with_intervals_says_that_verdicts_rest_on_others():
    for low, end in ((0.1, INTERVALS_NOTE), (None, "as computed")):
        lines = below({"value": 0.2, "low": low}, ["as computed"])
        assert lines[0].startswith("tier trial; as computed") and lines[-1].endswith(end)


def test_formulas_in_a_note_are_never_broken_and_letters_are_drawn():
    for place in range(100, 130):
        note = f"{'x' * place} lambda 0.1 and $v v^T - B B^T$ with sigma_W"
        lines = below({"value": 1}, [note])
        assert all(line.count("$") % 2 == 0 for line in lines)
        told = " ".join(lines)
        assert all(part in told for part in (r"$\lambda$", "$v v^T - B B^T$", "sigma_W"))


def test_csv_keeps_every_digit_and_the_order_of_columns():
    rows = [{"b": 1 / 3, "a": None, "runs": ["x", "y"]}, {"a": 2, "b": float("inf"), "runs": ["x"]}]
    text = to_csv(("a", "b"), rows, "trial").decode()
    assert text == f"a,b,tier,runs\n,{1 / 3!r},trial,x;y\n2,inf,trial,x\n"
    with pytest.raises(TypeError, match="c"):
        to_csv(("a",), [{"c": 1, "runs": []}], "trial")


def test_tables_escape_text_and_keep_math():
    part = Part(
        "50 % of a|b",
        ("x_1", Math(r"\beta_l"), "value"),
        [("a|b & c", Math(r"\frac{1}{2}"), Measured(1234.5, 6.78)), ("", None, 1.5e-7)],
    )
    assert to_markdown([part], "tier t").splitlines() == [
        r"**50 % of a\|b**",
        "",
        r"| x_1 | $`\beta_l`$ | value |",
        "| --- | --- | ---: |",
        r"| a\|b & c | $`\frac{1}{2}`$ | 1234.5 ± 6.8 |",
        "|  |  | 1.5e-07 |",
        "",
        "_tier t_",
    ]
    tex = to_tex([part], "tier_t")
    assert r"a|b \& c & $\frac{1}{2}$ & 1234.5 $\pm$ 6.8 \\" in tex
    assert r"& $1.5 \times 10^{-7}$ \\" in tex
    assert r"x\_1 & $\beta_l$ & value \\" in tex
    assert r"\multicolumn{3}{r}{\footnotesize tier\_t}" in tex
