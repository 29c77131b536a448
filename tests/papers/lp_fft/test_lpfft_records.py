"""lp_fft's specs and records as the classes of their kinds read them."""

import pytest

from dpatlas.config.load import load_tier
from dpatlas.core.canonical import canonical_json
from dpatlas.papers.lp_fft.block import BLOCK
from dpatlas.papers.lp_fft.settings import groups


@pytest.mark.parametrize("tier", ["smoke", "embedded", "workstation", "paper"])
def test_every_spec_of_a_tier_is_read_and_written_to_the_same_bytes(tier):
    specs = [spec for members in groups(load_tier(tier)).values() for spec in members]
    assert {spec.fields["kind"] for spec in specs} <= set(BLOCK.kinds)
    for spec in specs:
        model = BLOCK.load(f"records.{spec.fields['kind']}").Spec
        written = model.model_validate(spec.fields).model_dump(mode="json", exclude_unset=True)
        assert canonical_json(written) == canonical_json(spec.fields)
