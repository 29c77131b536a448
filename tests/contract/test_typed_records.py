"""Records of every kind: the classes of a block read all its specs and change none."""

import importlib
import inspect
from importlib.util import find_spec

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_tier
from dpatlas.core import records
from dpatlas.core.canonical import canonical_json
from dpatlas.registry import all_blocks

TIERS = ("embedded", "smoke", "workstation", "paper")
TYPED = {key: block for key, block in all_blocks().items() if find_spec(f"{block.package}.records")}
KINDS = [(key, kind) for key, block in TYPED.items() for kind in block.kinds]


def types_of(key, kind):
    return importlib.import_module(f"{TYPED[key].package}.records.{kind}")


@pytest.mark.parametrize("tier", TIERS)
def test_every_spec_of_a_tier_fits_its_kind_and_keeps_its_json(tier):
    specs = [spec for spec in Atlas(load_tier(tier)).specs.values() if spec.key in TYPED]
    assert specs
    for spec in specs:
        fields = types_of(spec.key, spec.fields["kind"]).Spec.model_validate(spec.fields)
        dumped = fields.model_dump(mode="json", exclude_unset=True)
        assert canonical_json(dumped) == spec.text, spec.id


@pytest.mark.parametrize(("key", "kind"), KINDS)
def test_a_kind_says_what_its_records_hold(key, kind):
    """Every field of the metrics is declared with a type, in classes that have a docstring."""
    types = types_of(key, kind)
    assert issubclass(types.Spec, records.SpecFields) and issubclass(types.Metrics, records.Metrics)
    assert types.Metrics.model_fields
    for name, model in inspect.getmembers(types, inspect.isclass):
        if issubclass(model, records.Typed) and model.__module__ == types.__name__:
            assert model.__doc__, name
            assert model.model_config["extra"] == "forbid" and model.model_config["strict"], name
            for field, info in model.model_fields.items():
                assert "Any" not in str(info.annotation), f"{name}.{field}"
