"""Counts what all looks at certificates of the same records tried: K1 and K2; see `register`."""

from collections.abc import Iterable, Mapping
from typing import Any

from dpatlas.formulas.max_information.certificates import check_tried
from dpatlas.formulas.max_information.grid import lowest_kappa
from dpatlas_workflow.papers.max_information.records.certified import CertifiedFields, SetLooks

Fields = Mapping[str, Any]


def label_of(looks: SetLooks) -> dict[str, Any]:
    """What a record of certificates says of the looks behind it, as facts."""
    others = " and ".join(other.look for other in looks.others)
    unregistered = "" if looks.registered else ", not in the register"
    other_looks = f"; others: {others}" if others else ", and the only one"
    return {
        "selected_after_a_look": bool(others),
        "looks": f"look {looks.number} at certificates of these records{unregistered}{other_looks}",
    }


def counted(
    looks: Fields, tuples: Iterable[tuple[Any, ...]], taus: Iterable[float], beta: float
) -> tuple[int, int]:
    """Numbers of different tuples and values of tau among `tuples`, `taus` and all other looks."""
    tried_tuples, tried_taus = set(tuples), set(taus)
    for other in looks["others"]:
        tried_tuples |= set(lowest_kappa(other["grid"], other["K1"], other["n"], beta))
        tried_taus |= set(other["grid"]["taus"])
    return len(tried_tuples), len(tried_taus)


def check_paid(
    fields: CertifiedFields, tuples: Iterable[tuple[Any, ...]], taus: Iterable[float]
) -> None:
    """Raise `InputError` unless K1 and K2 of a spec pay for all that was tried on its records."""
    tried_tuples, tried_taus = counted(fields.looks.model_dump(), tuples, taus, fields.beta)
    check_tried(tried_tuples, tried_taus, fields.K1, fields.K2)
