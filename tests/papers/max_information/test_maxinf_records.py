"""Specs of the shipped tiers as the classes of their kinds read them, and what these refuse."""

import pytest

from dpatlas.config.atlas import Atlas
from dpatlas.config.load import load_tier
from dpatlas.core.canonical import canonical_json
from dpatlas.papers.max_information.block import BLOCK


@pytest.mark.parametrize("tier", ["smoke", "embedded", "workstation", "paper"])
def test_specs_keep_their_bytes(tier):
    atlas = Atlas(load_tier(tier))
    specs = [atlas.specs[name] for name in atlas.ids(BLOCK.key)]
    assert {spec.fields["kind"] for spec in specs} == set(BLOCK.kinds)
    for spec in specs:
        fields = BLOCK.load(f"records.{spec.fields['kind']}").Spec.model_validate(spec.fields)
        dumped = fields.model_dump(mode="json", exclude_unset=True)
        assert canonical_json(dumped) == spec.text
