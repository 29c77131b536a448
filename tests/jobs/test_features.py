"""Features of frozen backbones: the same bits as within a job, bound to their data and backbone."""

import errno
import json
import os
import re

import numpy as np
import pytest
import torch
from lpfft_small import Given, given_in
from lpfft_small import run as run_lp_fft
from lpfft_small import spec_of as lp_fft_spec_of
from sgld_small import (
    BACKBONE,
    SCALE,
    long_chosen,
    run,
    save_backbone,
    save_data,
    save_features,
    spec_of,
)

from dpatlas.base.records import Stopwatch, checked_fields
from dpatlas.data import features as frozen
from dpatlas.data import prepared
from dpatlas.errors import InputError, run_command
from dpatlas.jobs.job import Job
from dpatlas.models import backbone
from dpatlas_workflow.papers.lp_fft.jobs.networks import BackboneNetworks
from dpatlas_workflow.papers.lp_fft.jobs.strategies import KIND
from dpatlas_workflow.run.arms import outputs
from dpatlas_workflow.run.deals import Deals
from dpatlas_workflow.run.features import main

SHOWN = {"features": "penultimate", "backbone": BACKBONE}
SPEC = spec_of("long_training", **SHOWN, steps=[2], chosen=long_chosen([2]))


@pytest.fixture
def data(tmp_path):
    return save_data(tmp_path / "data")


@pytest.fixture
def folder(tmp_path):
    return save_backbone(tmp_path / "backbone")


@pytest.fixture
def taken(data, folder, tmp_path):
    return save_features(data, folder, tmp_path / "features")


def test_they_are_what_the_backbone_gives_within_a_process_bit_for_bit(data, folder, taken):
    network, images = backbone.load(folder).network, prepared.load(data.parent)
    found = frozen.load(taken)
    for part in frozen.PARTS:
        expected = backbone.features(network, getattr(images, f"x_{part}"))
        assert np.array_equal(found.x[part], expected)
        assert np.array_equal(found.labels[part], getattr(images, f"y_{part}"))


@pytest.mark.parametrize("rank", [None, 2])
def test_a_head_sees_what_the_network_before_it_would_show_it(tmp_path, rank):
    given = given_in(tmp_path)
    spec = lp_fft_spec_of("strategies", lora_rank=rank, data={"name": "small", "redeal": False})
    images, shown = prepared.load(given.data.parent), frozen.load(given.features)
    fields = checked_fields(KIND.record.spec, spec.fields, "--spec: ")
    job = Job(spec, fields, images, "cpu", None, Stopwatch(), features=shown)
    networks = BackboneNetworks(job, backbone.load(given.backbone), rank=rank)
    seen = networks.seen(Deals(job).of(0))
    with torch.no_grad():
        before, _ = networks.fresh(0).split(["head.weight"])
    for part, images in seen.x.items():
        assert torch.equal(seen.features[part], outputs(before, images))


def test_two_jobs_write_the_same_bytes(data, folder, taken, tmp_path):
    again = tmp_path / "again" / taken.name
    main(["--data", str(data), "--backbone", str(folder), "--output", str(again)])
    for path in taken.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()


def test_arrays_are_mapped_and_writing_to_them_changes_no_file(taken):
    found = frozen.load(taken)
    assert isinstance(found.x["train"], np.memmap)
    found.x["train"][:] = 7
    assert not np.any(np.load(taken / "x_train.npy", mmap_mode="r") == 7)


def test_a_job_on_features_reads_no_image(data, folder, taken, tmp_path):
    whole = json.loads(run(SPEC, data, tmp_path / "whole", [folder], taken))
    (data.parent / prepared.ARRAYS).unlink()
    assert json.loads(run(SPEC, data, tmp_path / "without", [folder], taken)) == whole
    made = whole["metrics"]["features"]
    assert made == {**frozen.load(taken).identity(), "device": "cpu"}
    assert whole["data"]["sha256"] == json.loads(data.read_text())["sha256"]


def test_features_of_other_data_or_of_another_backbone_are_refused(data, folder, tmp_path):
    other_data = save_data(tmp_path / "other-data", x_train=0.5)
    other_backbone = save_backbone(tmp_path / "other-backbone", seed=1)
    for given, made_by, words in (
        (other_data, folder, "features of data with sha256"),
        (data, other_backbone, "features of backbone with sha256"),
    ):
        made = save_features(given, made_by, tmp_path / f"of-{given.parent.name}-{made_by.name}")
        with pytest.raises(InputError, match=words):
            run(SPEC, data, tmp_path / "refused", [folder], made)
    assert not (tmp_path / "refused" / "record.json").exists()


def test_a_strategy_on_a_frozen_body_is_refused_without_features(tmp_path, monkeypatch):
    given = given_in(tmp_path)
    monkeypatch.setattr("lpfft_small.takes_features", lambda spec: False)
    with pytest.raises(InputError, match="--features: found nothing"):
        run_lp_fft(lp_fft_spec_of("strategies"), Given(given.data, None, given.backbone), tmp_path)


@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
@pytest.mark.parametrize("name", ["x_train.npy", "y_test.npy"])
def test_a_damaged_file_is_refused_by_name(taken, name, damage):
    path = taken / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes({"changed": content, "cut": content[:-9], "missing": b""}[damage])
    if damage == "missing":
        path.unlink()
    with pytest.raises(InputError, match=name):
        frozen.load(taken)


def test_a_folder_of_another_kind_is_named_with_what_its_manifest_lacks(data, folder, taken):
    prepared_set = data.parent
    for load, place, lacks in (
        (frozen.load, prepared_set, "arrays"),
        (frozen.load, folder, "without arrays"),
        (backbone.load, prepared_set, "without architecture, options"),
        (backbone.load, taken, "without architecture, options"),
    ):
        message = f"manifest.json: found a manifest of another kind.*{lacks}"
        with pytest.raises(InputError, match=message):
            load(place)
    (taken / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="schema version None"):
        frozen.load(taken)


def test_a_full_disk_leaves_no_manifest_and_no_half_file(data, folder, tmp_path, monkeypatch):
    syncs = iter(range(10))

    def full(file):
        if next(syncs) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_features(data, folder, tmp_path / "features")
    found = sorted(path.name for path in (tmp_path / "features").iterdir())
    assert found == ["x_train.npy", "y_train.npy"]


@pytest.mark.parametrize(
    "changes", [{"scale": {**SCALE, "divide": 255}}, {"image_shape": (1, 2, 8)}]
)
def test_a_backbone_of_other_images_is_refused(data, tmp_path, changes):
    other = save_backbone(tmp_path / "backbone", **changes)
    with pytest.raises(InputError, match="data: found"):
        save_features(data, other, tmp_path / "features")
    assert not (tmp_path / "features").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_backbone_whose_features_are_no_numbers_is_refused_in_one_line(
    data, folder, tmp_path, capsys, value
):
    """One weight behind the last hidden layer spoils a feature of every record."""
    broken = backbone.load(folder)
    with torch.no_grad():
        bias = dict(broken.network.named_parameters())["linear2.bias"]
        bias[0] = value
    facts = ("architecture", "options", "image_shape", "classes", "training")
    backbone.save(folder, broken.network, **{name: broken.manifest[name] for name in facts})
    output = tmp_path / "features"
    words = ["--data", str(data), "--backbone", str(folder), "--output", str(output)]
    assert run_command(main, words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(rf"dpatlas: --backbone {re.escape(str(folder))}: found NaN or infinity", line)
    assert f"of {data.parent.name}; allowed:" in line
    assert not list(output.iterdir())


def test_one_record_without_finite_features_does_not_end_the_job(folder, tmp_path):
    data = save_data(tmp_path / "nan", x_train=np.nan)
    found = frozen.load(save_features(data, folder, tmp_path / "features"))
    finite = np.isfinite(found.x["train"]).all(axis=1)
    assert not finite[0] and finite[1:].all()
