"""Every kind of job that checkpoints, killed while it writes one, or given one that is none."""

import functools
import itertools
import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import feature_small
import lpfft_small
import maxinf_small
import numpy as np
import pytest
import sgld_small
import small_jobs
from lpfft_small import a_guarantee_that_remembers, what_jobs_are_given  # noqa: F401
from small_jobs import Killed, counted, killed_at

from dpatlas.base.arrays import read_arrays
from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.files import PART
from dpatlas.base.specs import Spec
from dpatlas.data import prepared
from dpatlas.data.prepare import prepare
from dpatlas.jobs import job
from dpatlas_workflow.papers.lp_fft.jobs import umap
from dpatlas_workflow.run.command import main

COMPARED = {"strategies": ["lp", "lp-fft"], "shares": [0.5], "control_shares": [], "steps": 2}
LPFFT = {
    "strategies": {**COMPARED, "runs": 2},
    "strategies_tuning": {**COMPARED, "lrs": {"head": [1.0], "full": [0.5], "lora": [0.5]}},
    "feature_quality": {"head_scales": [1.0], "runs": 1, "steps": 2, "lp_steps": 1, "at": [0, 2]},
    "umap": {"lp_steps": [0, 1], "fft_steps": 2, "early": 1, "runs": 1},
}
MAXINF = {
    "certificates": {"priors": [maxinf_small.DP_SGD], "draws": 300, "runs": 1},
    "agreement": {
        **{"kind": "agreement", "priors": [maxinf_small.DP_SGD], "taus": [0.4]},
        **{"repetitions": 1, "draws": 300},
    },
}


def by_main(spec, given, folder):
    """The record's bytes."""
    return small_jobs.run_main(main, spec, given.data, folder).read_bytes()


def kl_privacy(given, folder):
    """The record's bytes; of two networks in every run."""
    arrays = small_jobs.labelled({"train": 12, "add": 4}, margin=1)
    prepared.save(folder / "data", arrays, {"name": "small"})
    spec = Spec.of({**small_jobs.KL, "networks": 2}, "small")
    return by_main(spec, SimpleNamespace(data=folder / "data/manifest.json"), folder)


def backbone(given, folder):
    """The bytes of the record and of the weights."""
    places, strokes = [folder / "backbone"], folder / "strokes"
    prepare("strokes", {"n_train": 40, "n_test": 10}, strokes)
    spec, manifest = Spec.of(small_jobs.PRETRAIN, "small"), strokes / "manifest.json"
    main(small_jobs.arguments(spec, manifest, folder, places))
    return (folder / "record.json").read_bytes() + (places[0] / "weights.npz").read_bytes()


def feature_learning(given, folder):
    with feature_small.one_run_at_a_time():
        return feature_small.run(feature_small.spec_of(runs=2), folder)


def lp_fft(kind, given, folder):
    with pytest.MonkeyPatch.context() as patch:
        # UMAP itself gives the same bits twice, which papers/lp_fft tests, and takes seconds.
        patch.setattr(umap, "embed", lambda features, *given: features[:, :2])
        return lpfft_small.run(lpfft_small.spec_of(kind, **LPFFT[kind]), given, folder)


def dp_sgld(kind, given, folder):
    return sgld_small.run(sgld_small.spec_of(kind), given.data, folder, [given.backbone])


def max_information(kind, given, folder):
    return maxinf_small.run(maxinf_small.spec_of(**MAXINF[kind]), given.data, folder)


def of_kind(by, kind):
    # Calibration without replacement takes seconds.
    marks = [pytest.mark.slow] if by is dp_sgld else []
    return pytest.param(functools.partial(by, kind), id=kind, marks=marks)


CASES = [
    pytest.param(kl_privacy, id="training"),
    pytest.param(backbone, id="backbone"),
    pytest.param(functools.partial(by_main, Spec.of(small_jobs.NETWORK, "small")), id="network"),
    pytest.param(feature_learning, id="simulation"),
    *(of_kind(lp_fft, kind) for kind in LPFFT),
    *(of_kind(max_information, kind) for kind in MAXINF),
    *(of_kind(dp_sgld, kind) for kind in (*sgld_small.TUNED, *sgld_small.FIELDS)),
]


@pytest.fixture
def often(monkeypatch):
    """No step without a checkpoint, and none waits for a disk."""
    monkeypatch.setattr(job, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr("os.fsync", lambda file: None)


@contextmanager
def killed_write(number, boundary):
    """The process dies in its write number `number` of a checkpoint, at a boundary."""
    writes, real_save = itertools.count(), Checkpoints.save

    def die(*given):
        raise Killed

    def save(*given):
        if next(writes) != number:
            return real_save(*given)
        if boundary == "before the rename":
            # Whoever is killed removes nothing.
            patch.setattr(Path, "replace", die)
            patch.setattr(Path, "unlink", lambda path, **named: None)
            return real_save(*given)
        if boundary == "after the rename":
            real_save(*given)
        raise Killed

    with pytest.raises(Killed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        yield


def parts(folder):
    return [path for path in folder.rglob("*") if path.name.endswith(PART)]


UNDISTURBED = {}


@pytest.fixture
def undisturbed(request, case, given, tmp_path, often):
    """The bytes of a job that nobody kills, and how often it saves."""
    key = request.node.callspec.id
    if key not in UNDISTURBED:
        with counted((Checkpoints, "save")) as saves:
            made = case(given, tmp_path / "undisturbed")
        UNDISTURBED[key] = made, len(saves)
    return UNDISTURBED[key]


@pytest.mark.parametrize("case", CASES)
def test_a_job_killed_at_any_boundary_of_a_checkpoint_resumes_to_the_same_bytes(
    case, given, tmp_path, undisturbed
):
    made, saves = undisturbed
    assert saves > 1
    for boundary in ("before the write", "before the rename", "after the rename"):
        folder = tmp_path / boundary
        with killed_write(saves // 2, boundary):
            case(given, folder)
        assert len(parts(folder)) == (boundary == "before the rename")
        assert not (folder / "record.json").exists()
        assert case(given, folder) == made
        assert not parts(folder) and not any((folder / "checkpoints").iterdir())


@pytest.mark.parametrize("case", CASES)
def test_a_job_killed_after_its_record_and_before_it_clears_up_gives_the_same_bytes(
    case, given, tmp_path, undisturbed
):
    folder = tmp_path / "killed"
    with killed_at(0, (Checkpoints, "clear")):
        case(given, folder)
    # Snakemake removes what a job that failed has written.
    (folder / "record.json").unlink()
    assert case(given, folder) == undisturbed[0] and not any((folder / "checkpoints").iterdir())


def test_a_job_killed_while_it_writes_its_record_leaves_no_part_of_it(given, tmp_path, monkeypatch):
    real = Path.replace

    def die(path, target):
        if Path(target).name == "record.json":
            raise Killed
        return real(path, target)

    run = CASES[0].values[0]
    whole = run(given, tmp_path / "whole")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, "replace", die)
        patch.setattr(Path, "unlink", lambda path, **named: None)
        run(given, tmp_path / "killed")
    assert len(parts(tmp_path)) == 1 and not (tmp_path / "killed/record.json").exists()
    assert run(given, tmp_path / "killed") == whole
    assert not parts(tmp_path)


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def of_another_code(path):
    """A checkpoint that is whole and plausible, of a version to come."""
    arrays = read_arrays(path)
    header = arrays.pop("__header__").tobytes()
    stranger = Checkpoints(path.parent, {"code": "of tomorrow"})
    doubled = {name: 2 * array for name, array in arrays.items()}
    stranger.save(path.stem, doubled, json.loads(header)["facts"])


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_that_is_torn_or_a_stranger_s_is_not_used(case, given, tmp_path, undisturbed):
    made, saves = undisturbed
    folder = tmp_path / "killed"
    with killed_write(saves - 1, "after the rename"):
        case(given, folder)
    checkpoints = sorted((folder / "checkpoints").rglob("*.npz"))
    assert checkpoints
    # Every damage to any file ends in none to load, as base/test_checkpoints.py shows.
    damages = itertools.cycle((of_another_code, truncated, flipped))
    for path, damage in zip(checkpoints, damages, strict=False):
        damage(path)
    assert case(given, folder) == made


def test_a_checkpoint_of_another_backbone_of_the_same_id_is_not_used(tmp_path, often):
    """As where a backbone was made again while a job that had begun with it lay killed."""
    case = functools.partial(lp_fft, "feature_quality")
    before, after = (lpfft_small.given_in(tmp_path / name) for name in ("before", "after"))
    weights = read_arrays(after.backbone / "weights.npz")
    body = next(name for name in weights if not name.startswith("head."))
    weights[body] = 2 * weights[body]
    manifest = json.loads((after.backbone / "manifest.json").read_text())
    np.savez(after.backbone / "weights.npz", **weights)
    manifest["sha256"] = prepared.content_sha256(weights)
    (after.backbone / "manifest.json").write_text(json.dumps(manifest))
    whole = case(after, tmp_path / "whole")
    assert whole != case(before, tmp_path / "other")
    with killed_write(2, "after the rename"):
        case(before, tmp_path / "killed")
    assert case(after, tmp_path / "killed") == whole


def test_the_kinds_are_all_that_save_a_checkpoint():
    """And whoever saves one does so by its stages."""
    source = Path(job.__file__).parents[2]
    texts = {path.relative_to(source): path.read_text() for path in source.rglob("*.py")}
    assert {path.stem for path, text in texts.items() if "job.save(" in text} == {"resume"}
    with_stages = sorted(path.stem for path, text in texts.items() if "Stages(" in text)
    of_kinds = ["backbone", "certified", "features", "simulation", "training"]
    # The second `training` is of one's own, whose kills are in train/test_train_own.py.
    assert with_stages == sorted(["tuning", "reports", "training", *of_kinds])
