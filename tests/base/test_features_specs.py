"""Which features of frozen backbones a run computes, who takes them, and what is declared."""

import functools
import json
import math

import pytest
from tier_atlases import atlas_of

from dpatlas.models import backbone
from dpatlas.models.build import build
from dpatlas_workflow.config import planned
from dpatlas_workflow.config.atlas import data_id
from dpatlas_workflow.config.sizes import INPUTS, features_mb, records_of
from dpatlas_workflow.cost.plan import jobs_of

TIERS = ("embedded", "smoke", "workstation", "photographs", "printed", "paper")
SHAPES = {64: (1, 8, 8), 784: (1, 28, 28), 3072: (3, 32, 32)}


@pytest.fixture(scope="module", params=TIERS)
def atlas(request):
    return atlas_of(request.param)


def test_each_data_set_is_shown_once_by_each_backbone_that_some_job_takes_frozen(atlas):
    known = {**atlas.specs, **atlas.tunings}
    takers = {name: spec for name, spec in known.items() if atlas.job(name).features}
    pairs = {(data_id(spec), spec.fields["backbone"]) for spec in takers.values()}
    found = atlas.frozen_features.values()
    assert pairs == {(each.data_id, each.backbone.id) for each in found}
    assert len(found) == len(pairs) <= len(takers)
    for name in takers:
        (manifest,) = atlas.job(name).features
        folder = manifest.removesuffix("/manifest.json")
        assert f"--features {folder}" in atlas.job(name).arguments
        data, trained = atlas.features_files(folder.split("/")[-1])
        assert data == atlas.job(name).data and trained == atlas.job(name).weights


def test_the_plan_counts_them(atlas):
    planned = [job for job in jobs_of(atlas) if job.kind == "features"]
    # A tuning whose outcome is shipped does not run.
    needed = {path for name in atlas.specs for path in atlas.job(name).features}
    frozen = atlas.frozen_features.items()
    shown = [each for name, each in frozen if f"{atlas.features(name)}/manifest.json" in needed]
    for job, found in zip(planned, shown, strict=True):
        assert job.memory_mb == atlas.features_memory_mb(found.id) > found.memory_mb > 1100
        assert job.units > records_of(found.data)
        assert job.disk_mb == found.disk_mb


def test_a_chunk_is_as_large_as_the_memory_is_declared_for():
    assert planned.CHUNK == backbone.CHUNK


@functools.cache
def width_of(model, shape, options):
    network = build(model, shape, 10, key="test", run=0, base_seed=0, **json.loads(options))
    return network.head.in_features


def test_no_backbone_has_more_features_than_are_declared(atlas):
    for found in atlas.frozen_features.values():
        fields = found.backbone.fields
        shape = tuple(fields.get("image_shape") or SHAPES[INPUTS[fields["data"]["name"]]])
        width = width_of(fields["model"], shape, json.dumps(fields["options"]))
        written = records_of(found.data) * width * 4 / 2**20
        assert written <= features_mb(found.data) * (1 + 1e-9)
        assert math.prod(shape) * records_of(found.data) * 4 / 2**20 * 2 < found.memory_mb
