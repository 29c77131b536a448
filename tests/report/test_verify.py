import re
import shutil
import subprocess

import numpy as np
import pytest
from small_run import CODE_NOW, DATA, FIGURE, TABLE, small_run, spec_of, write_run

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.files import read_json, write_atomic, write_json
from dpatlas.data import prepared
from dpatlas.data.prepared import content_sha256
from dpatlas.errors import run_command
from dpatlas_workflow.commands import verify as command
from dpatlas_workflow.report import manifest, state

pytestmark = pytest.mark.usefixtures("code_as_made")
FILES = [f"figures/{FIGURE}.csv", f"tables/{TABLE}.csv", "claims.csv", "comparisons.csv"]
OTHER = {"key": "kl_privacy", "kind": "training", "depth": 3}
RECORD = "runs/kl_privacy/*/record.json"
JOBS = "dpatlas_workflow.papers.kl_privacy.jobs"


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
    files = [str(folder / name) for name in FILES]
    places = ["--results", str(folder), "--output", str(folder / "manifest.txt")]
    assert run_command(manifest.main, [*places, "--files", *files]) == 0
    return folder


def verified(folder, capsys):
    """Exit code and lines."""
    code = run_command(command.main, [str(folder)])
    return code, capsys.readouterr().out.splitlines()


def a_record(run):
    return sorted(run.glob(RECORD))[0]


def edit_json(path, **changes):
    write_json(path, {**read_json(path), **changes})


def test_a_manifest_is_what_sha256sum_writes(run):
    command = ["sha256sum", *sorted(FILES)]
    written = subprocess.run(command, cwd=run, capture_output=True, text=True, check=True).stdout
    assert (run / "manifest.txt").read_text() == written


def test_a_manifest_has_no_file_of_elsewhere(run, tmp_path, refusal_of):
    places = ["--results", run, "--output", tmp_path / "new.txt"]
    for path in (tmp_path / "other.csv", run / "figures/none.csv"):
        refusal_of(manifest.main, *places, "--files", path)
    assert not (tmp_path / "new.txt").exists()


def test_an_edited_figure_or_table_gets_no_checksum(run, refusal_of):
    run = run.rename(run.with_name("smoke"))
    path = run / f"tables/{TABLE}.csv"
    path.write_text("edited")
    before = (run / "manifest.txt").read_bytes()
    words = ["--results", run, "--output", run / "manifest.txt", "--files", path]
    line = refusal_of(manifest.main, *words)
    assert f"{path}: found other content than lineage/{TABLE}.json says" in line
    again = f"snakemake --cores 1 --force {TABLE} --configfile workflow/tiers/smoke.yaml"
    assert f"{again} makes it again" in line
    assert (run / "manifest.txt").read_bytes() == before
    edit_json(run / f"lineage/{TABLE}.json", outputs={})
    refusal_of(manifest.main, *words)


def test_what_cannot_be_read_is_a_line_among_the_others(run, capsys, monkeypatch):
    table = f"tables/{TABLE}.tex"
    (run / table).write_text("edited")
    (run / ARRAYS).unlink()
    (run / ARRAYS).mkdir()
    read = type(run).read_bytes

    def read_bytes(path):
        if path == run / FILES[0]:
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(type(run), "read_bytes", read_bytes)
    code, (first, second, third) = verified(run, capsys)
    assert code == 1 and second.startswith(f"{table}: sha256")
    assert (first, third) == (f"{FILES[0]}: Permission denied", f"{ARRAYS}: Is a directory")


def test_a_csv_that_no_manifest_has_is_named(run, capsys):
    shutil.copy(run / FILES[0], run / "figures/mine.csv")
    lines = ["figures/mine.csv: not in manifest.txt", "figures/mine.csv: no lineage names it"]
    assert verified(run, capsys) == (1, lines)


ARRAYS, WEIGHTS = "data/digits-1/arrays.npz", "runs/pretrain/one-1/backbone/weights.npz"
STRAY = "a record that is not at runs/KEY/ID/record.json"
# A file, what it has (None: it is lost), and the pattern of the line that names it.
CHANGED = [
    *((name, "edited", "sha256.*") for name in (FILES[0], f"tables/{TABLE}.tex")),
    *((name, "edited", "found.*") for name in (ARRAYS, WEIGHTS)),
    *((name, None, ".*") for name in (FILES[0], f"tables/{TABLE}.tex", ARRAYS, WEIGHTS)),
    (f"lineage/{FIGURE}.json", "edited", "found text that is not JSON.*"),
    ("manifest.txt", b"\xff", ".*run snakemake again with the same --configfile"),
    *(
        (f"{place}record.json", "{}", STRAY)
        for place in ("runs/mine/", "runs/lp_fft/a/b/", "runs/")
    ),
    ("figures/kl_vs_moon.pdf", "mine", "no lineage names it"),
    (f"tables/{TABLE}.txt", "mine", "no lineage names it"),
    ("figures/a/b", "mine", "no lineage names it"),
    # What a killed writer or a desktop leaves is no result, and a cost may differ.
    ("figures/.kl_vs_depth.pdf.x.part", "", None),
    ("figures/.DS_Store", "", None),
    (f"runs/kl_privacy/{spec_of(depth=2).id}/cost.json", "{", None),
]


@pytest.mark.parametrize(("name", "content", "found"), CHANGED)
def test_what_was_edited_lost_or_made_by_nothing_is_named_in_a_line(
    run, capsys, name, content, found
):
    if content is None:
        (run / name).unlink()
    else:
        write_atomic(run / name, content)
    code, lines = verified(run, capsys)
    assert code == (found is not None)
    if found:
        (line,) = lines
        assert re.fullmatch(f"{re.escape(name)}: {found}", line)


def test_files_whose_lineage_is_gone_are_named(run, capsys):
    (run / f"lineage/{FIGURE}.json").unlink()
    (run / f"figures/{FIGURE}.png").unlink()
    left = [f"figures/{FIGURE}.{suffix}" for suffix in ("csv", "json", "pdf", "svg")]
    assert verified(run, capsys) == (1, [f"{name}: no lineage names it" for name in left])
    shutil.rmtree(run / "lineage")
    assert len(verified(run, capsys)[1]) == len(left) + 3


def test_a_run_that_has_drawn_nothing_yet_lacks_its_manifest_alone(run, capsys):
    for name in ("figures", "tables", "lineage"):
        shutil.rmtree(run / name)
    for name in ("claims.csv", "comparisons.csv", "manifest.txt"):
        (run / name).unlink()
    # A run of one figure lacks it too, and the same command again would not write it.
    code, (line,) = verified(run, capsys)
    made = "manifest.txt: missing; a complete run writes it: snakemake --cores 1"
    assert code == 1 and line.startswith(made)


@pytest.mark.parametrize(
    ("what", "place"), [("features", "features/one"), ("backbone", "runs/pretrain/one-1/backbone")]
)
def test_inputs_that_are_gone_are_named_with_the_record(run, capsys, what, place):
    used = {"id": "one", "sha256": "f" * 64}
    write_run(run, spec_of(depth=6), data=None, metrics={what: used})
    code, (line,) = verified(run, capsys)
    assert code == 1 and f"{what} with sha256 ffffffffffffffff, of which no manifest is in" in line
    assert line.endswith(f" {place.partition('/')[0]}/")
    # The archive of a run has none of its inputs.
    write_json(run / "bundle.json", {})
    assert verified(run, capsys)[0] == 0
    (run / "bundle.json").unlink()
    write_json(run / place / "manifest.json", {"sha256": used["sha256"]})
    assert not any("of which no manifest" in line for line in verified(run, capsys)[1])


@pytest.mark.parametrize(
    ("total", "of_arm", "agree"), [(None, 2.0, True), (0.1, 2.0, False), (None, 0.1, False)]
)
def test_a_tuning_whose_ledger_says_another_epsilon_than_its_rows_is_named(
    run, capsys, total, of_arm, agree
):
    """No figure, and so no lineage, has a tuning's record."""
    ledger = {"epsilon": total, "arms": [{"epsilon": of_arm}, {"epsilon": None}]}
    rows = [{"trials_epsilon": 2.0}, {"trials_epsilon": None}]
    write_run(run, spec_of(depth=6), data=None, ledger=ledger, metrics={"rows": rows})
    code, lines = verified(run, capsys)
    assert code == (0 if agree else 1)
    assert any("a ledger with other epsilons" in line for line in lines) == (not agree)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"spec": {"key": "kl_privacy", "depth": 3}}, "spec digest"),
        # With the digest of that spec, which its name has not.
        ({"spec": OTHER, "spec_digest": sha256(canonical_json(OTHER))}, "spec digest"),
        ({"id": f"x-{spec_of(depth=2).digest[:8]}"}, "the record of kl_privacy/x-"),
        ({"key": "lp_fft"}, "the record of lp_fft/"),
        ({"code_digest": "another"}, f"made by {JOBS}.training another"),
        ({"data": DATA}, "data with sha256 ddd"),
        # The arrays that are there, said to come from elsewhere.
        ({"data": {"source": {"kind": "elsewhere"}}}, "data with sha256"),
    ],
)
def test_a_record_that_was_changed_is_named_with_the_reason(run, capsys, changes, word):
    path = a_record(run)
    if changes.get("data", {}).keys() == {"source"}:
        changes = {"data": read_json(path)["data"] | changes["data"]}
    edit_json(path, **changes)
    code, lines = verified(run, capsys)
    name = path.relative_to(run).as_posix()
    assert code == 1 and all(line.startswith(name) for line in lines)
    # Both products were made from its former bytes.
    assert sum("in place of" in line and word not in line for line in lines) == 1
    assert any(word in line for line in lines)


@pytest.mark.parametrize(
    "name", [f"lineage/{FIGURE}.json", "data/digits-1/manifest.json", "record", "published"]
)
def test_json_of_another_shape_is_a_line(run, tmp_path, capsys, name):
    folder = tmp_path / "published" if name == "published" else run
    path = {"record": a_record(run), "published": folder / "manifest.json"}.get(name, run / name)
    for content in ([], {"files": 1}):
        write_json(path, content)
        code, lines = verified(folder, capsys)
        assert code == 1
        assert any(path.relative_to(folder).as_posix() in line for line in lines)


def test_a_number_that_no_json_has_is_a_line(run, capsys):
    path = a_record(run)
    path.write_text(path.read_text().replace("0.05", "NaN"))
    code, lines = verified(run, capsys)
    assert code == 1
    assert f"{path.relative_to(run).as_posix()}: content of another shape" in lines


def test_products_and_records_of_other_code_are_named(run, capsys, monkeypatch):
    monkeypatch.setattr(state, "digest_now", lambda name: CODE_NOW if "figures" in name else "new")
    code, lines = verified(run, capsys)
    assert code == 1 and len(lines) == 2 and all("which is new now" in line for line in lines)


PUBLISHED = ("claims.csv", f"figures/{FIGURE}.pdf")


@pytest.fixture
def publication(tmp_path):
    """A published figure and its manifest."""
    folder = tmp_path / "docs/embedded"
    for name in (*PUBLISHED, "README.md"):
        write_atomic(folder / name, name)
    lineage = dict.fromkeys(("name", "tier", "code_digest"), "x") | {"kind": "figure"}
    lineage |= {"module": f"dpatlas_workflow.papers.kl_privacy.figures.{FIGURE}"}
    lineage |= {name: {} for name in ("settings", "records", "versions")}
    products = {FIGURE: lineage | {"outputs": {f"{FIGURE}.{each}": "" for each in ("pdf", "svg")}}}
    others = {name: {} for name in ("code", "cost", "data", "records")}
    digests = {name: sha256(name) for name in PUBLISHED}
    manifest = {"files": digests, "products": products, "versions": [], **others}
    write_json(folder / "manifest.json", manifest)
    return folder


@pytest.mark.parametrize(
    ("file", "content", "lines"),
    [
        ("README.md", "README.md", []),
        ("claims.csv", "b", ["claims.csv: sha256 3e23e8160039594a in place of "]),
        ("figures/x.pdf", "", ["figures/x.pdf: not in manifest.json"]),
        (".DS_Store", "", []),
        ("manifest.json", {"files": {}}, [f"{name}: not in manifest.json" for name in PUBLISHED]),
        ("manifest.json", '{"files": {}}', ["manifest.json: products: found nothing; allowed:"]),
    ],
)
def test_a_published_run_is_verified_by_its_own_manifest(publication, capsys, file, content, lines):
    if isinstance(content, dict):
        edit_json(publication / file, **content)
    else:
        write_atomic(publication / file, content)
    code, found = verified(publication, capsys)
    assert code == (1 if lines else 0) and len(found) == max(1, len(lines))
    assert all(line in each for line, each in zip(lines, found, strict=False))


@pytest.mark.parametrize(
    "arguments", [["--tier", "no-such"], ["--tier", "smoke", "here"], ["none/at/all"], ["."]]
)
def test_bad_arguments_are_one_line_and_exit_code_2(arguments, refusal_of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refusal_of(command.main, *arguments)


def test_code_that_is_gone_has_no_digest(monkeypatch):
    monkeypatch.undo()
    assert state.digest_now("dpatlas.no.such.module") is None
    assert state.as_made(CODE_NOW, None) is False
