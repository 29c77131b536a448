"""The selection of priors in max_information, which tables and claims share.

For every kind of prior, each run selects the prior and tau with the smallest certificate. The
priors of one setting may be divided among several jobs; their rows are joined first.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dpatlas.core.canonical import canonical_json
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.universe import PriorKind
from dpatlas.papers.max_information.looks import check_paid
from dpatlas.papers.max_information.records.certificates import Metrics, Row, Spec
from dpatlas.records import Record

CertificatesRecord = Record[Spec, Metrics]
KINDS: tuple[PriorKind, ...] = ("independent", "noise-only", "dp-sgd")
HYPERPARAMETERS = ("zeta", "sigma", "m", "E", "lr")
# Fields of a row with certificates of a posterior: with the form of kappa that the config chooses,
# with a proof without a gap, and with payment for every setting that could have been chosen.
PAID, RIGOROUS = "certificate_posterior", "certificate_rigorous"
UNIVERSE = "certificate_universe"


@dataclass(frozen=True)
class Setting:
    """Records of kind `certificates` that differ in what they try only, and all their rows.

    All have the same runs; of a record with more, the first ones.
    """

    records: tuple[CertificatesRecord, ...]
    rows: tuple[Row, ...]

    @property
    def spec(self) -> Spec:
        """Spec of the first record; those of the others differ in priors and taus only."""
        return self.records[0].spec

    @property
    def metrics(self) -> Metrics:
        """Metrics of the first record, whose sizes of data and network are those of all records."""
        return self.records[0].metrics

    @property
    def ids(self) -> list[str]:
        """Ids of the conditions: a prior's runs, in however many blocks."""
        return [record.id for record in self.records]

    @property
    def blocks(self) -> list[str]:
        """Ids of the records that were read."""
        return [block for record in self.records for block in record.ids]

    @property
    def kinds(self) -> list[PriorKind]:
        """Kinds of priors that were tried, in the order of `KINDS`."""
        return [kind for kind in KINDS if self.of_kind(kind)]

    def of_kind(self, kind: str) -> list[Row]:
        """All rows of one kind of prior."""
        return [row for row in self.rows if row.prior == kind]

    def tried(self, kind: str) -> tuple[int, int]:
        """How many hyperparameter tuples and values of tau were tried for a kind of prior."""
        rows = self.of_kind(kind)
        return len({hyperparameters(row) for row in rows}), len({row.tau for row in rows})

    def selected(self, kind: str, by: str = PAID) -> list[Row]:
        """The row with the smallest certificate in every run, in order of runs.

        The first of equal ones is selected; without a prior of the kind there is no row. by: which
        certificate, such as `PAID`.
        """
        best: dict[int, Row] = {}
        for row in self.of_kind(kind):
            if getattr(row, by) < getattr(best.setdefault(row.run, row), by):
                best[row.run] = row
        return [best[run] for run in sorted(best)]


def hyperparameters(row: Row) -> tuple[float | None, ...]:
    """zeta, sigma, m, E and lr of a prior: the tuples that K1 of the union bound counts."""
    return row.zeta, row.sigma, row.m, row.E, row.lr


def settings_of(records: Iterable[CertificatesRecord]) -> list[Setting]:
    """The settings of `certificates` records, in order of first appearance.

    Raises InputError for a prior that appears twice, and where K1 and K2 do not pay for all tuples
    of a kind and all values of tau that were tried, here or in other looks at the same records.
    """
    joined: dict[str, list[CertificatesRecord]] = {}
    for record in records:
        shared = record.spec.model_dump(mode="json", exclude={"priors", "taus", "runs"})
        joined.setdefault(canonical_json(shared), []).append(record)
    return [_setting(tuple(members)) for members in joined.values()]


def _setting(records: tuple[CertificatesRecord, ...]) -> Setting:
    runs = min(record.spec.runs for record in records)
    records = tuple(record.cut(runs) for record in records)
    setting = Setting(records, tuple(row for record in records for row in record.metrics.rows))
    keys = [(row.prior, hyperparameters(row), row.tau, row.run) for row in setting.rows]
    if len(set(keys)) < len(keys):
        raise InputError(" and ".join(setting.ids), "a prior twice", "every prior once")
    for kind in setting.kinds:
        rows = setting.of_kind(kind)
        # An independent prior has no hyperparameters to choose.
        tuples = {hyperparameters(row) for row in rows} if kind != "independent" else set()
        check_paid(setting.spec, tuples, {row.tau for row in rows})
    return setting
