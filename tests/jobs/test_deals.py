"""What each run of a job is dealt: parts without a common record, other ones in every run."""

from types import SimpleNamespace

import numpy as np
import own_miniature
import pytest
from sgld_small import BACKBONE, save_backbone

from dpatlas.base.facts import DataFields
from dpatlas.data import features as frozen
from dpatlas.data import prepared
from dpatlas.data.prepare import prepare
from dpatlas.errors import InputError
from dpatlas.models import backbone as backbones
from dpatlas_workflow.run.deals import Deals
from dpatlas_workflow.run.features import features as take_features

DIGITS = {"name": "digits", "classes": [0, 1, 2], "n_train": 300, "n_test": 80, "n_validation": 100}
FONTS = {**DIGITS, "name": "fonts"}
OWN = {"name": own_miniature.NAME, "classes": own_miniature.CLASSES}
OWN |= {"n_train": 60, "n_add": 0, "n_test": 17, "n_validation": 23}


def job_of(data, folder, *, seed=0, redeal=True, own_path=None, definition=None):
    """A job's part that deals need."""
    options = {name: value for name, value in data.items() if name != "name"}
    if definition:
        options["own"] = definition
    prepare(data["name"], {**options, "n_add": 0}, folder, own_path=own_path)
    fields = SimpleNamespace(data=DataFields(**data, redeal=redeal), seed=seed)
    return SimpleNamespace(prepared=prepared.load(folder), fields=fields, features=None)


@pytest.fixture(params=["digits", "own"])
def job(request, tmp_path):
    """Of digits, or of images of two classes without a split of their own."""
    if request.param == "digits":
        return job_of(DIGITS, tmp_path)
    own_miniature.pile(tmp_path / "scans", 50)
    given = {"definition": own_miniature.GREY, "own_path": str(tmp_path / "scans")}
    return job_of(OWN, tmp_path / "data", **given)


def rows(*arrays):
    """Records as a sorted list of bytes, so that two lists are equal if the records are."""
    return sorted(each.tobytes() for array in arrays for each in array)


def parts_of(dealt):
    return {part: rows(dealt.x[part]) for part in dealt.x}


def test_runs_deal_the_pool_and_trials_the_fixed_part_into_parts_of_their_sizes(job):
    """No run deals a record that settings are chosen on: places show it, where images do not."""
    data, deals = job.prepared, Deals(job)
    pool, fixed = np.concatenate([data.x_train, data.x_test]), rows(data.x_validation)
    tests = {"run": set(), "trial": set()}
    for run in range(40):
        dealt, trial = deals.of(run), deals.trial(run)
        places = np.concatenate([dealt.positions[part] for part in ("train", "test")])
        assert sorted(places.tolist()) == list(range(len(pool)))
        for part, x in dealt.x.items():
            np.testing.assert_array_equal(pool[dealt.positions[part]], x)
        assert len(dealt.x["train"]) == len(data.x_train) == len(dealt.labels["train"])
        assert rows(*trial.x.values()) == fixed
        assert len(trial.x["train"]) == len(fixed) * 5 // 6
        tests["run"].add(tuple(parts_of(dealt)["test"]))
        tests["trial"].add(tuple(parts_of(trial)["test"]))
    assert len(tests["run"]) == len(tests["trial"]) == 40


def test_labels_stay_with_their_records(job):
    data = job.prepared
    label_of = {
        record.tobytes(): label
        for part in ("train", "test", "validation")
        for record, label in zip(
            getattr(data, f"x_{part}"), getattr(data, f"y_{part}"), strict=True
        )
    }
    for dealt in (Deals(job).of(5), Deals(job).trial(5)):
        for part, x in dealt.x.items():
            assert [label_of[record.tobytes()] for record in x] == dealt.labels[part].tolist()


def test_a_deal_depends_on_the_run_and_the_base_seed_alone(tmp_path):
    """Arms and blocks of runs make their own `Deals`, or ask one again, in any order."""
    first, other = (job_of(DIGITS, tmp_path / str(seed), seed=seed) for seed in (0, 1))
    deals = Deals(first)
    in_order = [parts_of(deals.of(run)) for run in range(3)]
    assert [parts_of(Deals(first).of(run)) for run in (2, 1, 0)] == in_order[::-1]
    assert parts_of(Deals(other).of(0)) != in_order[0]


def test_without_redealing_runs_have_the_prepared_parts(tmp_path):
    job = job_of(DIGITS, tmp_path, redeal=False)
    for run in (0, 7):
        dealt = Deals(job).of(run)
        assert dealt.x["train"] is job.prepared.x_train
        assert dealt.labels["test"] is job.prepared.y_test
        assert dealt.positions["test"].tolist() == list(range(300, 380))


def test_other_parts_are_dealt_likewise(tmp_path):
    prepare("digits", {"classes": [3, 8], "n_train": 100}, tmp_path)
    data = prepared.load(tmp_path)
    fields = SimpleNamespace(data=DataFields(name="digits", redeal=True), seed=0)
    dealt = Deals(SimpleNamespace(prepared=data, fields=fields), ("train", "add")).of(0)
    assert rows(*dealt.x.values()) == rows(data.x_train, data.x_add)
    assert len(dealt.x["train"]) == 100 and parts_of(dealt)["train"] != rows(data.x_train)


def test_a_generated_set_gives_every_run_records_that_no_other_one_saw(tmp_path):
    """At 8 x 8 pixels of 17 levels two fonts' digits hardly ever agree by chance."""
    job = job_of(FONTS, tmp_path)
    deals, data = Deals(job), job.prepared
    # Trials deal its fixed part.
    assert rows(*deals.trial(0).x.values()) == rows(data.x_validation)
    seen = set(rows(data.x_train, data.x_test, data.x_validation))
    assert len(seen) == 480
    for run in range(2):
        dealt = deals.of(run)
        assert {part: len(x) for part, x in dealt.x.items()} == {"train": 300, "test": 80}
        fresh = set(rows(*dealt.x.values()))
        assert len(fresh) == 380 and not fresh & seen
        assert parts_of(Deals(job).of(run)) == parts_of(dealt)
        assert dealt.x["train"].dtype == np.float32 and dealt.x["train"].min() >= 0
        assert dealt.x["train"].max() == 1 and set(dealt.labels["test"]) == {0, 1, 2}
        seen |= fresh
    other = Deals(job_of({**FONTS, "selection": 1}, tmp_path / "other")).of(0)
    assert not set(rows(*other.x.values())) & seen


@pytest.mark.parametrize("data", [DIGITS, FONTS])
def test_features_are_those_of_the_dealt_images(tmp_path, data):
    folder = save_backbone(tmp_path / "backbone", image_shape=(1, 8, 8))
    job = job_of(data, tmp_path / "data")
    backbone = backbones.load(folder)
    if data is DIGITS:
        with pytest.raises(InputError, match="folder of the backbone's features"):
            Deals(job).of(0).features(backbone)
    take_features(tmp_path / "data" / "manifest.json", folder, tmp_path / "features", "cpu")
    job.features = frozen.load(tmp_path / "features")
    for dealt in (Deals(job).of(3), Deals(job).trial(3)):
        found = dealt.features(backbone)
        for part, x in dealt.x.items():
            expected = backbones.features(backbone.network, x)
            # Products of other chunks of records may round otherwise.
            np.testing.assert_allclose(found[part], expected, rtol=1e-4, atol=1e-5)
    assert backbone.manifest["training"]["spec_id"] == BACKBONE


def test_a_fixed_part_that_is_too_small_is_refused(tmp_path):
    job = job_of({**DIGITS, "n_validation": 2}, tmp_path / "two")
    assert [len(x) for x in Deals(job).trial(0).x.values()] == [1, 1]
    job = job_of({**DIGITS, "n_validation": 1}, tmp_path / "one")
    with pytest.raises(InputError, match="n_validation"):
        Deals(job).trial(0)
