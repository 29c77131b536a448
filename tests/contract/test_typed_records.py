"""Records of every kind: the classes of a block read all its specs and change none."""

from importlib.util import find_spec

import pytest
from tier_atlases import atlas_of

from dpatlas.base import records
from dpatlas.base.canonical import canonical_json
from dpatlas_workflow.records import diverged_at, inputs_used, measured, parse_spec, shape_of
from dpatlas_workflow.registry import all_blocks

TIERS = ("embedded", "smoke", "workstation", "photographs", "printed", "paper")
TYPED = {key: block for key, block in all_blocks().items() if find_spec(f"{block.package}.records")}
KINDS = [(key, kind) for key, block in TYPED.items() for kind in block.kinds]


@pytest.mark.parametrize("tier", TIERS)
def test_every_spec_of_a_tier_fits_its_kind_and_keeps_its_json(tier):
    specs = [spec for spec in atlas_of(tier).specs.values() if spec.key in TYPED]
    assert specs
    for spec in specs:
        fields = parse_spec(spec.fields, spec.id)
        dumped = fields.model_dump(mode="json", exclude_unset=True)
        assert canonical_json(dumped) == spec.text, spec.id


@pytest.mark.parametrize(("key", "kind"), KINDS)
def test_a_kind_says_what_its_records_hold(key, kind):
    """A spec in classes that have a docstring, and names of facts and columns, each once."""
    shape = shape_of(key, kind)
    assert issubclass(shape.spec, records.SpecFields) and shape.spec.__doc__
    assert TYPED[key].load(f"records.{kind}").__doc__
    names = [*shape.facts.split(), *shape.tables]
    for each in (names, *map(shape.columns, shape.tables)):
        assert each and len(set(each)) == len(each)


def test_inputs_are_told_apart_from_what_was_measured():
    used = {"id": "digits-net", "sha256": "a" * 64, "device": "cpu"}
    trained = {"metrics": {"features": used, "backbone": None, "rows": [1]}}
    assert inputs_used(trained) == {"features": used, "backbone": None}
    assert measured(trained) == {"backbone": None, "rows": [1]}
    pretrained = {"metrics": {"features": 128}}
    assert inputs_used(pretrained) == {"features": None, "backbone": None}
    assert measured(pretrained) == {"features": 128}


@pytest.mark.parametrize(
    ("metrics", "steps"),
    [
        ({"diverged": [None, 7]}, [None, 7]),
        ({"diverged": 3}, [3]),
        ({"diverged": None}, [None]),
        ({"rows": [{"diverged": None}, {"diverged": 2}, {}]}, [None, 2]),
        ({"kl": 1.0}, []),
    ],
)
def test_divergence_is_a_list_of_steps_whatever_the_kind(metrics, steps):
    assert diverged_at({"metrics": metrics}) == steps
