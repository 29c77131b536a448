"""What is claimed of a training that is audited: its settings, and with them a whole profile.

A single pair (epsilon, delta) at a small delta can hardly be contradicted by runs that one can
afford; the settings give epsilon at every delta, and each of these is part of the claim.
"""

from typing import Any

import numpy as np

from dpatlas.accounting.one_run import PROFILE_DELTAS
from dpatlas.base.guard import integer, one_of, real
from dpatlas.epsilon.claim import CLAIM_KEYS, RELATIONS, ClaimedPhase, printed, read_claim
from dpatlas.epsilon.claim import EpsilonClaim as Settings
from dpatlas.epsilon.valid import accountants, epsilon_by, event
from dpatlas.errors import InputError

# Other commands say `claimed` for `epsilon`; a target would leave the noise multiplier open.
KEYS = (*(key for key in CLAIM_KEYS if key not in ("claimed", "target")), "epsilon", "canaries")


class Claim:
    """The claim that a training is private.

    Settings as in `dpatlas.check_epsilon`: sampler, n, batch, noise (standard deviation on the sum
    of clipped gradients over the clip bound C), steps or epochs, drop_last, or `phases`; delta.
    epsilon: the epsilon that was published at delta, a number or the digits as printed ("1.0"),
    None for what the settings guarantee; without any settings the claim is this one pair. relation:
    how the two data sets of the audit differ: zero_out (the default; the canary or a blank record
    whose gradient is zero), add_remove (with or without the canary; keep a blank record in its
    place here too, since one that is really removed shifts the random numbers, and premises that
    compare equal seeds are not tested then) or replace_one (the canary or another record).
    canaries: of an audit by one run; 1 for repeated runs.

    Raises InputError for bad settings.
    """

    def __init__(
        self,
        *,
        delta: float | None = None,
        epsilon: float | str | None = None,
        relation: str = "zero_out",
        canaries: int = 1,
        **settings: Any,
    ):
        one_of(*RELATIONS).check("relation", relation)
        integer(ge=1, le=10**6).check("canaries", canaries)
        for key in settings:
            if key not in KEYS:
                raise InputError(key, "an unknown key", ", ".join(KEYS))
        self.relation, self.canaries = relation, canaries
        self.epsilon: float | None = None
        self.settings: Settings | None = None
        if not settings:
            if epsilon is None:
                allowed = "the settings (sampler, n, batch, noise, steps), or epsilon and delta"
                raise InputError("claim", "neither settings nor epsilon", allowed)
            real(gt=0, lt=1).check("delta", delta)
        else:
            given = {**settings, "delta": delta, "claimed": epsilon, "relation": relation}
            self.settings = read_claim(given, lambda key: "epsilon" if key == "claimed" else key)
            if self.settings.trials or self.settings.runs > 1:
                raise InputError("claim", "several trainings", "the settings of one training")
        assert delta is not None
        self.delta = float(delta)
        if epsilon is not None:
            self.epsilon = printed(epsilon, "epsilon").value
            # Whoever audits looks for a loss of privacy that the claim allows.
            real(gt=0).check("epsilon", self.epsilon)
        self._profile: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def phases(self) -> tuple[ClaimedPhase, ...]:
        """Phases of the training; empty where only an epsilon is claimed."""
        return self.settings.phases if self.settings else ()

    @property
    def steps(self) -> int | None:
        """Number of noisy sums of all phases."""
        return sum(phase.steps for phase in self.phases) if self.phases else None

    @property
    def n(self) -> int | None:
        """Number of records."""
        return self._first("n")

    @property
    def batch(self) -> int | None:
        """(Expected) batch size of the first phase."""
        return self._first("batch")

    @property
    def noise(self) -> float | None:
        """Noise multiplier of the first phase."""
        return self._first("noise")

    @property
    def sampler(self) -> str | None:
        """How the first phase draws its batches."""
        return self._first("sampler")

    @property
    def sample_rate(self) -> float | None:
        """batch / n of the first phase."""
        return self.batch / self.n if self.batch and self.n else None

    def _first(self, name: str) -> Any:
        return getattr(self.phases[0], name) if self.phases else None

    @property
    def sensitivity(self) -> float:
        """How far one record may move a noisy sum, in units of C."""
        return 2.0 if self.relation == "replace_one" else 1.0

    @property
    def guaranteed(self) -> float | None:
        """The smallest proved epsilon at delta; None where nothing is proved of the settings."""
        return self._guaranteed(self.delta)

    @property
    def claimed(self) -> float:
        """Epsilon at delta that is put to the test. Raises InputError where nothing is claimed."""
        value = self.guaranteed if self.epsilon is None else self.epsilon
        if value is None:
            found = f"{self.sampler} batches under {self.relation}"
            raise InputError("claim", f"no proved epsilon for {found}", "an epsilon beside them")
        return value

    def _guaranteed(self, delta: float) -> float | None:
        composed = event(self.settings, self.relation) if self.settings else None
        # For the smallest deltas there may be no accountant.
        if composed is None or not (names := accountants(composed, delta)):
            return None
        # The first is the tightest.
        return epsilon_by(composed, delta, names[0])[0]

    def profile(self) -> tuple[np.ndarray, np.ndarray]:
        """(epsilons, deltas) that hold together if the claim does; finite epsilons only."""
        if self._profile is None:
            pairs = [(self.claimed, self.delta)]
            for delta in PROFILE_DELTAS:
                if delta > self.delta and (epsilon := self._guaranteed(delta)) is not None:
                    pairs.append((epsilon, delta))
            epsilons, deltas = np.array(pairs).T
            kept = np.isfinite(epsilons)
            self._profile = epsilons[kept], deltas[kept]
        return self._profile

    def as_dict(self) -> dict[str, Any]:
        """The claim as JSON values."""
        return {
            "phases": [dict(vars(phase)) for phase in self.phases],
            "delta": self.delta,
            "epsilon": self.epsilon,
            "relation": self.relation,
            "canaries": self.canaries,
        }

    def __str__(self) -> str:
        parts = [*(phase.describe() for phase in self.phases)]
        if self.epsilon is not None:
            parts.append(f"epsilon {self.epsilon:g}")
        return f"{'; '.join(parts)}; delta {self.delta:g}, {self.relation}"
