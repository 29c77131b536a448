"""A certificate with all that it was computed from, in words and as values."""

import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from dpatlas.base.progress import duration

WIDTH = 100
SCOPE = (
    "The certificate bounds the error of the randomised network, which draws its weights anew for "
    "each record from the posterior, on records from the distribution of the certified ones. It "
    "holds if the records are independent draws and the model, as it was given, has seen none of "
    "them. It is not a bound for one fixed network, the mean of the posterior included. It pays "
    "for the choice among the values of tau, and not for the choice among several reports on the "
    "same records: other seeds, priors, models or settings. The held-out bound is one for a single "
    "fixed network. Each of the two holds with the probability stated, both together with 1 minus "
    "twice delta."
)


@dataclass(frozen=True)
class PosteriorRow:
    """A posterior, `trained` or the prior itself; risk: on the certified records, by Monte Carlo.

    risk_limit: upper confidence limit of it. kl: nats, infinite where training diverged. All
    certificates of a report hold together, with probability 1 - delta.
    """

    tau: float
    trained: bool
    risk: float
    risk_limit: float
    kl: float
    certificate: float


@dataclass(frozen=True)
class HeldOut:
    """A plain held-out bound: of one network trained on `learnt` records, tested on n others.

    limit: Clopper-Pearson upper limit of its error, at `errors` of n, with probability 1 - delta.
    """

    learnt: int
    n: int
    errors: int
    limit: float


@dataclass(frozen=True)
class CertifyReport:
    """The smallest certificate of a grid; `str` gives it in words.

    n: number of certified records. draws: pairs of record and weights behind each risk. delta_parts
    add up to delta. kappa_printed: kappa as the paper prints it, None without DP-SGD. test_error:
    of the same randomised network on n_test test records, None without. duplicates: records equal
    to an earlier one. test_overlap: test records equal to one of the records. seconds: of all work.
    held_out: what a plain held-out set of the same records gives, None for too few records.
    """

    prior: str
    paid: str
    rows: tuple[PosteriorRow, ...]
    n: int
    draws: int
    delta: float
    delta_parts: dict[str, float]
    kappa: float
    kappa_printed: float | None
    test_error: float | None
    n_test: int
    duplicates: int
    test_overlap: int
    held_out: HeldOut | None
    parameters: int
    seed: int
    seconds: float

    @property
    def best(self) -> PosteriorRow:
        """The row of the smallest certificate; of several, the first."""
        return min(self.rows, key=lambda row: row.certificate)

    @property
    def certificate(self) -> float:
        """Upper bound on the randomised network's error, with probability 1 - delta."""
        return self.best.certificate

    @property
    def prior_certificate(self) -> float:
        """The certificate of the prior itself at the same tau, from which the posterior began."""
        return next(
            row.certificate for row in self.rows if row.tau == self.best.tau and not row.trained
        )

    @property
    def tighter(self) -> str | None:
        """The smaller bound: "certificate", "held-out", "neither"; None without a held-out one."""
        if self.held_out is None:
            return None
        if self.certificate == self.held_out.limit:
            return "neither"
        return "certificate" if self.certificate < self.held_out.limit else "held-out"

    def as_dict(self) -> dict[str, Any]:
        """As JSON values; an infinite KL or kappa is None."""
        best, values = self.best, asdict(self)
        rows = [{**row, "kl": _finite(row["kl"])} for row in values.pop("rows")]
        return {
            "certificate": best.certificate,
            "tau": best.tau,
            "risk": best.risk,
            "risk_limit": best.risk_limit,
            "kl": _finite(best.kl),
            "trained": best.trained,
            "prior_certificate": self.prior_certificate,
            "tighter": self.tighter,
            **values,
            "kappa": _finite(self.kappa),
            "kappa_printed": None if self.kappa_printed is None else _finite(self.kappa_printed),
            "grid": rows,
            "scope": SCOPE,
        }

    def _beside(self) -> list[str]:
        """The held-out bound in words, and which of both is tighter."""
        plain = self.held_out
        if plain is None:
            return ["held-out bound: none, too few records for both parts"]
        apart = abs(float(_up(plain.limit)) - float(_up(self.certificate)))
        which = {
            "certificate": f"looser than the certificate by {apart:.4f}",
            "held-out": f"tighter than the certificate by {apart:.4f}",
            "neither": "equal to the certificate",
        }
        return [
            f"held-out bound {_up(plain.limit)}, {which[str(self.tighter)]}: one network trained "
            f"on {plain.learnt}",
            f"  records errs on {plain.errors} of {plain.n} others, so at most this with "
            f"probability {_confidence(self.delta)} (Clopper-Pearson)",
        ]

    def __str__(self) -> str:
        best = self.best
        parts = ", ".join(f"{share:g} {name}" for name, share in self.delta_parts.items())
        alone = f"alone it has the certificate {_up(self.prior_certificate)}"
        alone = alone if best.trained else "the prior itself, which no posterior improved on"
        vacuous = " (vacuous)" if best.certificate >= 1 else ""
        lines = [
            f"certificate {_up(best.certificate)}{vacuous}: the error is at most this with "
            f"probability {_confidence(self.delta)}",
            f"  risk {best.risk:.4f} on {self.n} records, at most {_up(best.risk_limit)} by "
            f"{self.draws} draws; KL {best.kl:.5g} nats",
            f"  prior {self.prior}, tau {best.tau:g}, {self.parameters} parameters; {alone}",
            *textwrap.wrap(f"paid: {self.paid}; log {len(self.rows) // 2} for tau", WIDTH - 2),
            f"delta {self.delta:g} = {parts}",
        ]
        lines[3:] = [f"  {line}" for line in lines[3:]]
        lines += self._beside()
        if self.duplicates:
            lines.append(
                f"  {self.duplicates} records are equal to another one: if they are copies, and no "
                "independent draws, there is no certificate"
            )
        if self.test_error is not None:
            seen = f"of which {self.test_overlap} are among the records too"
            lines.append(
                f"  test error {self.test_error:.4f} of the same randomised network on "
                f"{self.n_test} records, {seen if self.test_overlap else 'which chose nothing'}"
            )
        lines.append(f"  {duration(self.seconds)}, seed {self.seed}")
        lines += ["", "tau    trained  risk    KL        certificate"]
        lines += [
            f"{row.tau:<6g} {'yes' if row.trained else 'prior':<7}  {row.risk:.4f}  "
            f"{row.kl:<9.5g} {_up(row.certificate)}"
            for row in self.rows
        ]
        return "\n".join([*lines, "", *textwrap.wrap(SCOPE, WIDTH)])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _confidence(delta: float) -> str:
    """1 - delta, never rounded up."""
    text = f"{1 - delta:g}"
    return text if float(text) <= 1 - delta and delta > 1e-15 else f"1 - {delta:g}"


def _up(value: float) -> str:
    """Four decimals, rounded up."""
    return f"{math.ceil(value * 1e4) / 1e4:.4f}"
