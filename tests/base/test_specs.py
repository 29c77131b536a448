"""Specs: ids, digests and command-line arguments."""

import pytest

from dpatlas.base.specs import Spec, distinct
from dpatlas.errors import InputError

FIELDS = {"key": "kl_privacy", "kind": "training", "lr": 0.1, "data": {"classes": [3, 8], "n": 10}}


def test_id_and_digest_do_not_depend_on_the_order_of_keys():
    reordered = {
        name: dict(reversed(value.items())) if isinstance(value, dict) else value
        for name, value in reversed(FIELDS.items())
    }
    one, other = Spec.of(FIELDS, "he"), Spec.of(reordered, "he")
    assert list(reordered) != list(FIELDS)
    assert (one.id, one.digest, one.argument) == (other.id, other.digest, other.argument)


def test_ids_are_the_same_on_every_machine_and_in_every_year():
    assert Spec.of(FIELDS, "he-d2").id == "he-d2-a6bd4a59"


@pytest.mark.parametrize(
    "change", [{"lr": 0.2}, {"lr": 1}, {"data": {"classes": [8, 3], "n": 10}}, {"more": None}]
)
def test_every_field_takes_part_in_the_digest(change):
    assert Spec.of({**FIELDS, **change}, "he").digest != Spec.of(FIELDS, "he").digest


def test_a_spec_survives_the_command_line():
    spec = Spec.of(FIELDS, "he")
    assert Spec.parse(spec.argument) == spec
    assert "\n" not in spec.argument
    with pytest.raises(ValueError, match="JSON compliant"):
        Spec.of({**FIELDS, "lr": float("nan")}, "he")


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"slug": "a", "key": "kl_privacy"}'])
def test_text_that_is_no_spec_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"--spec: found .* allowed: the JSON of a spec"):
        Spec.parse(text)


def test_equal_specs_run_once_in_order_and_different_ones_with_one_id_are_refused(monkeypatch):
    one, other = Spec.of(FIELDS, "he"), Spec.of({**FIELDS, "lr": 0.2}, "he")
    assert list(distinct([other, one, Spec.of(FIELDS, "he"), other])) == [other.id, one.id]
    monkeypatch.setattr(Spec, "digest", property(lambda spec: "0" * 64))
    with pytest.raises(InputError, match="two different specs with id he-00000000"):
        distinct([one, other])
