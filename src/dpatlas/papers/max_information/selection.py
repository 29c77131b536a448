"""Which prior has the least certificate in max_information: one choice for table and claims.

Jobs may share out the priors of one setting. Their rows are joined here, and the choice is made
among all of them: by run and kind of prior.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dpatlas.core.canonical import canonical_json
from dpatlas.errors import InputError
from dpatlas.papers.max_information.formulas.universe import PriorKind
from dpatlas.papers.max_information.kinds import CertificatesRecord
from dpatlas.papers.max_information.looks import check_paid
from dpatlas.papers.max_information.records.certificates import Metrics, Row, Spec

KINDS: tuple[PriorKind, ...] = ("independent", "noise-only", "dp-sgd")
HYPERPARAMETERS = ("zeta", "sigma", "m", "E", "lr")
# Certificates of a posterior, as rows name them: by the form of kappa that is paid, by a proof
# without a gap, and by one that pays for every setting that could have been chosen.
PAID, RIGOROUS = "certificate_posterior", "certificate_rigorous"
UNIVERSE = "certificate_universe"


@dataclass(frozen=True)
class Setting:
    """Records of kind `certificates` that differ in their priors only, and all their rows."""

    records: tuple[CertificatesRecord, ...]
    rows: tuple[Row, ...]

    @property
    def spec(self) -> Spec:
        """Of the first record; all have the same but for their priors."""
        return self.records[0].spec

    @property
    def metrics(self) -> Metrics:
        """Of the first record: sizes of the data and the network are those of all."""
        return self.records[0].metrics

    @property
    def ids(self) -> list[str]:
        """Ids of the records."""
        return [record.id for record in self.records]

    @property
    def kinds(self) -> list[PriorKind]:
        """Kinds of priors that were tried, in the order of `KINDS`."""
        return [kind for kind in KINDS if self.of_kind(kind)]

    def of_kind(self, kind: str) -> list[Row]:
        """All rows of one kind of prior."""
        return [row for row in self.rows if row.prior == kind]

    def tried(self, kind: str) -> tuple[int, int]:
        """How many hyperparameter tuples and prior deviations of a kind were tried."""
        rows = self.of_kind(kind)
        return len({hyperparameters(row) for row in rows}), len({row.tau for row in rows})

    def selected(self, kind: str, by: str = PAID) -> list[Row]:
        """The row of least certificate in every run, by run; the first among equals.

        Empty where no prior is of the kind. by: which certificate, such as `PAID`.
        """
        best: dict[int, Row] = {}
        for row in self.of_kind(kind):
            if getattr(row, by) < getattr(best.setdefault(row.run, row), by):
                best[row.run] = row
        return [best[run] for run in sorted(best)]


def hyperparameters(row: Row) -> tuple[float | None, ...]:
    """zeta, sigma, m, E and lr of DP-SGD behind a prior, what the union bound's K1 counts."""
    return row.zeta, row.sigma, row.m, row.E, row.lr


def settings_of(records: Iterable[CertificatesRecord]) -> list[Setting]:
    """Settings of `certificates` records, in the order in which they come.

    Raises InputError where K1 and K2 do not pay for the tuples of a kind and the deviations that
    were tried, here and by the other looks at the same records, and for a prior that stands twice.
    """
    joined: dict[str, list[CertificatesRecord]] = {}
    for record in records:
        shared = record.spec.model_dump(mode="json", exclude={"priors"})
        joined.setdefault(canonical_json(shared), []).append(record)
    return [_setting(tuple(members)) for members in joined.values()]


def _setting(records: tuple[CertificatesRecord, ...]) -> Setting:
    setting = Setting(records, tuple(row for record in records for row in record.metrics.rows))
    keys = [(row.prior, hyperparameters(row), row.tau, row.run) for row in setting.rows]
    if len(set(keys)) < len(keys):
        raise InputError(" and ".join(setting.ids), "a prior twice", "every prior once")
    for kind in setting.kinds:
        rows = setting.of_kind(kind)
        # An independent prior has no tuple.
        tuples = {hyperparameters(row) for row in rows} if kind != "independent" else set()
        check_paid(setting.spec, tuples, {row.tau for row in rows})
    return setting
