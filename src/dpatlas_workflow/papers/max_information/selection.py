"""The selection of priors in max_information, which tables and claims share.

For every kind of prior, each run selects the prior and tau with the smallest certificate. The
priors of one setting may be divided among several jobs; their rows are joined first.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpatlas.base.canonical import canonical_json
from dpatlas.errors import InputError
from dpatlas.formulas.max_information.grid import DpSgdTuple
from dpatlas.formulas.max_information.kappa import FORMS
from dpatlas.formulas.max_information.universe import PriorKind
from dpatlas_workflow.papers.max_information.looks import check_paid
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns

KINDS: tuple[PriorKind, ...] = ("independent", "noise-only", "dp-sgd")
# The tuples that K1 of the union bound counts.
HYPERPARAMETERS = DpSgdTuple._fields
# Columns with certificates of a posterior: with the form of kappa that the config chooses, with a
# proof without a gap, and with payment for every setting that could have been chosen.
PAID, RIGOROUS = "certificate_posterior", "certificate_rigorous"
UNIVERSE = "certificate_universe"
# Infinite where a record has no value.
KAPPAS = [f"kappa_{form}" for form in (*FORMS, "rigorous")] + ["universe_kappa"]


@dataclass(frozen=True)
class CertifiedSetting:
    """Records of kind `certificates` that differ in what they try only, and all their rows.

    All have the same runs; of a record with more, the first ones. spec, facts: of the first record;
    the sizes of data and network are those of all.
    """

    records: tuple[Record[Any], ...]
    rows: pd.DataFrame

    @property
    def spec(self) -> Any:
        """Spec of the first record; those of the others differ in priors and taus only."""
        return self.records[0].spec

    @property
    def name(self) -> str:
        """The id of the first condition: a prior's runs, in however many blocks."""
        others = len(self.records) - 1
        return self.records[0].id + (f" and {others} more" if others else "")

    @property
    def blocks(self) -> list[str]:
        """Ids of the records that were read."""
        return [block for record in self.records for block in record.ids]

    @property
    def kinds(self) -> list[PriorKind]:
        """Kinds of priors that were tried, in the order of `KINDS`."""
        return [kind for kind in KINDS if (self.rows.prior == kind).any()]

    def of_kind(self, kind: str) -> pd.DataFrame:
        """All rows of one kind of prior."""
        return self.rows[self.rows.prior == kind]

    def tried(self, kind: str) -> tuple[int, int]:
        """How many hyperparameter tuples and values of tau were tried for a kind of prior."""
        rows = self.of_kind(kind)
        return len(rows[list(HYPERPARAMETERS)].drop_duplicates()), rows.tau.nunique()

    def selected(self, kind: str, by: str = PAID) -> pd.DataFrame:
        """The row with the smallest certificate in every run, in order of runs.

        The first of equal ones is selected; without a prior of the kind there is no row. by: which
        certificate, such as `PAID`.
        """
        rows = self.of_kind(kind)
        return rows.loc[rows.groupby("run")[by].idxmin()]


def settings_of(records: Iterable[Record[Any]]) -> list[CertifiedSetting]:
    """The settings of `certificates` records, in order of first appearance.

    Raises InputError for a prior that appears twice, and where K1 and K2 do not pay for all tuples
    of a kind and all values of tau that were tried, here or in other looks at the same records.
    """
    joined: dict[str, list[Record[Any]]] = {}
    for record in records:
        shared = record.spec.model_dump(mode="json", exclude={"priors", "taus", "runs"})
        joined.setdefault(canonical_json(shared), []).append(record)
    return [_setting(tuple(members)) for members in joined.values()]


def _setting(records: tuple[Record[Any], ...]) -> CertifiedSetting:
    runs = min(record.spec.runs for record in records)
    records = tuple(record.cut(runs) for record in records)
    rows = columns(records)
    rows[KAPPAS] = rows[KAPPAS].astype(float).fillna(math.inf)
    setting = CertifiedSetting(records, rows)
    if rows.duplicated(["prior", *HYPERPARAMETERS, "tau", "run"]).any():
        names = " and ".join(record.id for record in records)
        raise InputError(names, "a prior twice", "every prior once")
    for kind in setting.kinds:
        rows = setting.of_kind(kind)
        # An independent prior has no hyperparameters to choose.
        tuples = rows[list(HYPERPARAMETERS)] if kind != "independent" else rows[[]].iloc[:0]
        check_paid(setting.spec, tuples.itertuples(index=False, name=None), rows.tau)
    return setting
