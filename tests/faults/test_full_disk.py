"""A disk that is full at one write after the other: a line, nothing half-written, a good re-run."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import lpfft_small
import numpy as np
import pytest
import small_jobs
from figure_samples import products, show_words
from kl_sample_records import RECORDS, SETTINGS
from small_run import DATA

from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.files import PART
from dpatlas.base.specs import Spec
from dpatlas.data import prepare
from dpatlas.errors import run_command
from dpatlas.jobs import job
from dpatlas_workflow.evidence import claims
from dpatlas_workflow.report import manifest, page
from dpatlas_workflow.run import command as jobs
from dpatlas_workflow.run import features
from dpatlas_workflow.show import make

PROJECT = Path(__file__).parents[2]
DIGITS = {"name": "digits", "classes": [3, 8], "n_train": 30, "norm": 8.0}
# What the page says of a data set, beside its name and source.
SHOWN = {"classes": ["3", "8"], "licence": "free"}
STROKES = {"name": "strokes", "n_train": 40, "n_test": 10}
KL = small_jobs.kl_of(steps=2, data=DIGITS, depth=2, width=4, runs=1)
PRETRAIN = {**small_jobs.PRETRAIN, "epochs": 1, "batch": 20}


def prepared(folder, options):
    return prepare.main, ["--options", json.dumps(options), "--output", str(folder)]


def made(folder, options):
    """Manifest of a data set that is there."""
    main, words = prepared(folder, options)
    assert not main(words)
    return folder / "manifest.json"


def data(given, folder):
    return prepared(folder, DIGITS)


def record_and_checkpoints(given, folder):
    manifest = made(given / "digits", DIGITS)
    return jobs.main, small_jobs.arguments(Spec.of(KL, "small"), manifest, folder)


def backbone(given, folder):
    manifest, spec = made(given / "strokes", STROKES), Spec.of(PRETRAIN, "small")
    return jobs.main, small_jobs.arguments(spec, manifest, folder, [folder / "backbone"])


def frozen_features(given, folder):
    of = lpfft_small.given_in(given)
    # Features are named after their folder.
    places = ["--data", str(of.data), "--backbone", str(of.backbone)]
    return features.main, [*places, "--output", str(folder / "features")]


def product(name, given, folder):
    """Records in `given`, whose data have all that the page shows; files in `folder`."""
    records = [
        dataclasses.replace(record, data={**DATA, **SHOWN, **record.data})
        for record in RECORDS[name]()
    ]
    output, lineage = folder / products()[name][0].folder, folder / f"lineage/{name}.json"
    words = show_words(name, records, SETTINGS, given)
    for option, path in (("--output", output), ("--lineage", lineage)):
        words[words.index(option) + 1] = str(path)
    return make.main, words


def figure(given, folder):
    return product("kl_vs_width", given, folder)


def table(given, folder):
    return product("kl_constants", given, folder)


def claims_csv(given, folder):
    given.mkdir(exist_ok=True)
    settings, records = given / "settings.json", given / "records.txt"
    settings.write_text(json.dumps({"verdicts": False}))
    records.touch()
    read = ["--settings", str(settings), "--records", str(records)]
    return claims.main, [*read, "--tier", "t", "--output", str(folder / "claims.csv")]


def whole_run(folder):
    """A folder with a figure and verdicts."""
    for main, words in (product("kl_vs_width", folder, folder), claims_csv(folder, folder)):
        assert not main(words)
    return folder


def page_html(given, folder):
    run = whole_run(given / "trial")
    places = ["--results", str(run), "--output", str(folder / "index.html")]
    return page.main, ["--tier", "trial", *places]


def manifest_txt(given, folder):
    run = whole_run(given / "trial")
    files = [str(run / name) for name in ("claims.csv", "figures/kl_vs_width.csv")]
    places = ["--results", str(run), "--output", str(folder / "manifest.txt")]
    return manifest.main, [*places, "--files", *files]


# What writes, and how many files.
CASES = {
    data: 2,
    record_and_checkpoints: None,
    backbone: None,
    frozen_features: 7,
    figure: 6,
    table: 4,
    claims_csv: 2,
    page_html: 7,
    manifest_txt: 1,
}


@contextmanager
def room_for(files):
    """Within, the disk is full once so many files are written; yields the list of all writes."""
    real, writes = os.fsync, []

    def sync(handle):
        writes.append(handle)
        if len(writes) > files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", sync)
        yield writes


def files_of(folder):
    """Bytes by path of what readers find: no checkpoint, no cost."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "cost.json" and "checkpoints" not in path.parts
    }


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_full_disk_at_any_write_is_a_line_and_leaves_no_half_file(
    case, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(job, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    main, words = case(tmp_path / "given", tmp_path / "whole")
    with room_for(1000) as writes:
        assert run_command(main, words) == 0
    whole = files_of(tmp_path / "whole")
    assert whole and len(writes) == (CASES[case] or len(writes))
    folder = tmp_path / "small"
    main, words = case(tmp_path / "given", folder)
    refused = 0
    while True:
        capsys.readouterr()
        with room_for(refused):
            code = run_command(main, words)
        if code == 0:
            break
        refused += 1
        (line,) = [line for line in capsys.readouterr().err.splitlines() if "dpatlas:" in line]
        assert line.startswith(f"dpatlas: {folder}") and line.endswith(": No space left on device")
        left = files_of(folder)
        assert all(whole[name] == content for name, content in left.items())
        assert left.keys() < whole.keys()
        assert not list(folder.rglob(f"*{PART}"))
    assert files_of(folder) == whole
    # A job with checkpoints has less to write every time.
    assert refused == CASES[case] if CASES[case] else refused > 2


LIMITED = """
import resource, sys
from pathlib import Path
from dpatlas.errors import run_command
from dpatlas.base.files import write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
sys.exit(run_command(lambda words: write_atomic(words[0], b"x" * 9000), sys.argv[1:]))
"""


def test_a_file_that_the_system_cuts_off_is_not_there(tmp_path):
    """The kernel's own refusal, in the middle of a write."""
    path = tmp_path / "figure.png"
    found = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True
    )
    assert found.returncode == 1
    assert found.stderr == f"dpatlas: {path}: File too large\n"
    assert not list(tmp_path.iterdir())


@pytest.fixture
def mounted(tmp_path):
    """Mounts a small or read-only file system on a folder of the test; skips where it may not."""
    folder = tmp_path / "mounted"
    folder.mkdir()

    def mount(option):
        command = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("this user may not mount")
        return folder

    yield mount
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


def test_a_checkpoint_that_does_not_fit_keeps_the_one_before(mounted):
    folder = mounted("size=256k")
    checkpoints = Checkpoints(folder / "job", {"spec": "s"})
    checkpoints.save("state", {"x": np.zeros(1000)}, {"step": 1})
    with pytest.raises(OSError, match="No space left") as caught:
        checkpoints.save("state", {"x": np.zeros(100_000)}, {"step": 2})
    assert caught.value.filename == str(folder / "job/state.npz")
    assert checkpoints.load("state")[1] == {"step": 1}
    assert [path.name for path in (folder / "job").iterdir()] == ["state.npz"]


def test_a_folder_that_is_read_only_is_named_before_the_job_starts(mounted, tmp_path, capsys):
    manifest = made(tmp_path / "digits", DIGITS)
    folder = mounted("ro")
    words = small_jobs.arguments(Spec.of(KL, "small"), manifest, folder / "run")
    capsys.readouterr()
    assert run_command(jobs.main, words) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "without write permission" in line and str(folder) in line
