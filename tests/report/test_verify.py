import shutil
import subprocess

import numpy as np
import pytest
from small_run import CODE_NOW, DATA, FIGURE, TABLE, small_run

from dpatlas.commands import verify as command
from dpatlas.core.files import read_json, write_json
from dpatlas.data import prepared
from dpatlas.data.prepared import content_sha256
from dpatlas.errors import run_command
from dpatlas.report import manifest, state

pytestmark = pytest.mark.usefixtures("code_as_made")
FILES = [f"figures/{FIGURE}.csv", f"tables/{TABLE}.csv", "claims.csv", "comparisons.csv"]
RECORD = "runs/kl_privacy/*/record.json"


@pytest.fixture
def run(tmp_path):
    arrays = {f"{axis}_{part}": np.zeros((2, 3)[: 2 - (axis == "y")], "f4" if axis == "x" else "i8")
              for axis in "xy" for part in ("train", "add")}  # fmt: skip
    folder = tmp_path / "results/embedded"
    data = prepared.save(folder / "data/digits-1", arrays, {"classes": ["3"]})
    small_run(tmp_path / "results", data=data)
    weights = {"head.weight": np.ones((2, 3), "f4")}
    backbone = folder / "runs/pretrain/one-1/backbone"
    write_json(backbone / "manifest.json", {"sha256": content_sha256(weights)})
    np.savez(backbone / "weights.npz", **weights)
    write_manifest(folder)
    return folder


def write_manifest(folder):
    files = [str(folder / name) for name in FILES]
    places = ["--results", str(folder), "--output", str(folder / "manifest.txt")]
    assert run_command(manifest.main, [*places, "--files", *files]) == 0


def verified(folder, capsys):
    """Exit code and lines."""
    code = run_command(command.main, [str(folder)])
    return code, capsys.readouterr().out.splitlines()


def a_record(run):
    return sorted(run.glob(RECORD))[0]


def edit_json(path, **changes):
    write_json(path, {**read_json(path), **changes})


def test_a_manifest_is_what_sha256sum_writes_and_checks(run):
    text = (run / "manifest.txt").read_text()
    made = subprocess.run(["sha256sum", *sorted(FILES)], cwd=run, capture_output=True, text=True)
    assert text == made.stdout
    checked = subprocess.run(["sha256sum", "-c", "manifest.txt"], cwd=run, capture_output=True)
    assert checked.returncode == 0
    (run / FILES[0]).write_text("edited")
    checked = subprocess.run(["sha256sum", "-c", "manifest.txt"], cwd=run, capture_output=True)
    assert checked.returncode == 1


def test_a_manifest_has_no_file_of_elsewhere(run, tmp_path, capsys):
    places = ["--results", str(run), "--output", str(tmp_path / "new.txt")]
    assert run_command(manifest.main, [*places, "--files", str(tmp_path / "other.csv")]) == 2
    assert run_command(manifest.main, [*places, "--files", str(run / "figures/none.csv")]) == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert not (tmp_path / "new.txt").exists()


def test_a_cost_may_differ(run, capsys):
    a_record(run).with_name("cost.json").write_text("{")
    assert verified(run, capsys)[0] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (FILES[0], [f"{FILES[0]}: sha256", f"{FILES[0]}: sha256"]),
        (f"tables/{TABLE}.tex", [f"tables/{TABLE}.tex: sha256"]),
        ("data/digits-1/arrays.npz", ["data/digits-1/arrays.npz: found"]),
        ("runs/pretrain/one-1/backbone/weights.npz", ["backbone/weights.npz: found"]),
        (f"lineage/{FIGURE}.json", [f"lineage/{FIGURE}.json: found text that is not JSON"]),
    ],
)
def test_what_was_edited_or_lost_is_named_in_a_line(run, capsys, name, words):
    (run / name).write_text("edited")
    code, lines = verified(run, capsys)
    assert code == 1 and len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
    if not name.startswith("lineage"):
        (run / name).unlink()
        code, lost = verified(run, capsys)
        assert code == 1 and len(lost) == len(words)


def test_a_csv_that_no_manifest_has_is_named(run, capsys):
    shutil.copy(run / FILES[0], run / "figures/mine.csv")
    assert verified(run, capsys) == (1, ["figures/mine.csv: not in manifest.txt"])


def test_a_torn_manifest_is_named(run, capsys):
    (run / "manifest.txt").write_bytes(b"\xff")
    code, (line,) = verified(run, capsys)
    assert code == 1 and line.startswith("manifest.txt: ") and line.endswith("run snakemake again")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"spec": {"key": "kl_privacy", "depth": 3}}, "spec digest"),
        ({"key": "lp_fft"}, "the record of lp_fft/"),
        ({"code_digest": "another"}, "made by dpatlas.papers.kl_privacy.jobs.training another"),
        ({"data": DATA}, "data with sha256 ddd"),
    ],
)
def test_a_record_that_was_changed_is_named_with_the_reason(run, capsys, changes, word):
    path = a_record(run)
    edit_json(path, **changes)
    code, lines = verified(run, capsys)
    name = path.relative_to(run).as_posix()
    assert code == 1 and all(line.startswith(name) for line in lines)
    # Both products were made from its former bytes.
    assert sum("in place of" in line and word not in line for line in lines) == 2
    assert any(word in line for line in lines)


@pytest.mark.parametrize(
    "name", [f"lineage/{FIGURE}.json", "data/digits-1/manifest.json", "record", "published"]
)
@pytest.mark.parametrize("content", [[], {"files": 1}])
def test_json_of_another_shape_is_a_line(run, tmp_path, capsys, name, content):
    folder = tmp_path / "published" if name == "published" else run
    path = {"record": a_record(run), "published": folder / "manifest.json"}.get(name, run / name)
    write_json(path, content)
    code, lines = verified(folder, capsys)
    assert code == 1
    assert any(path.relative_to(folder).as_posix() in line for line in lines)


def test_products_and_records_of_other_code_are_named(run, capsys, monkeypatch):
    monkeypatch.setattr(state, "digest_now", lambda name: CODE_NOW if "figures" in name else "new")
    code, lines = verified(run, capsys)
    assert code == 1 and len(lines) == 2 and all("which is new now" in line for line in lines)


def test_a_published_run_is_verified_by_its_own_manifest(tmp_path, capsys):
    (tmp_path / "claims.csv").write_text("a")
    digest = state.file_sha256(tmp_path / "claims.csv")
    write_json(tmp_path / "manifest.json", {"files": {"claims.csv": digest}})
    assert verified(tmp_path, capsys)[0] == 0
    (tmp_path / "claims.csv").write_text("b")
    assert verified(tmp_path, capsys)[0] == 1


@pytest.mark.parametrize(
    "arguments", [["--tier", "no-such"], ["--tier", "smoke", "here"], ["none/at/all"], ["."]]
)
def test_bad_arguments_are_one_line_and_exit_code_2(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_command(command.main, arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
