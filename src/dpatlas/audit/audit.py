"""The audit of a training: pairs of runs for the premises, single runs for the bound, a verdict."""

import functools
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field

from dpatlas.accounting.audit_statistics import epsilon_lower_bound, profile_excess
from dpatlas.accounting.one_run import OneRunTest, one_run_profile_test
from dpatlas.audit.adversaries import Adversaries, Observed, separation
from dpatlas.audit.claim import Claim
from dpatlas.audit.pairs import REPEATED_PAIRS, Pair, from_arrays, run_pair, to_arrays
from dpatlas.audit.premises import is_absent, measured, premises
from dpatlas.audit.report import Attack, Report
from dpatlas.audit.run import OutOfTime, Run, Train, execute
from dpatlas.audit.script import Code, code_of
from dpatlas.base.arrays import read_arrays
from dpatlas.base.fields import Model, Number
from dpatlas.base.files import replacing, write_json
from dpatlas.base.guard import checked, integer, real
from dpatlas.base.progress import Progress
from dpatlas.base.yaml_files import read_checked
from dpatlas.errors import InputError

T = TypeVar("T")
RUNS, PAIRS, LEVEL = 100, 40, 0.99
# Its complement is shared by premises and adversaries, and a share of 0 would contradict nothing.
CONFIDENCE = real(gt=0, le=1 - 1e-9)
# The share of a limited time that pairs may take.
TIME_OF_PAIRS = 0.4
FEWEST_PAIRS, FEWEST_RUNS = 2, 8
# Of so many pairs one has runs with records of weight zero.
SILENCED_EVERY = 2
# Adversaries whose bounds share the error; a fourth of the runs selects them.
ADVERSARIES, SELECTION_STRIDE = 2, 4
# First words of the seeds of pairs, of the bound's runs and of coins.
OF_PAIRS, OF_RUNS, OF_COINS = 0, 1, 2
# In the folder of an audit, a line for each of the bound's runs.
RUNS_FILE = "runs.jsonl"


@checked(
    runs=integer(ge=FEWEST_RUNS, le=10**7),
    pairs=integer(ge=FEWEST_PAIRS, le=10**5),
    level=CONFIDENCE,
)
def audit_training(
    train: Train,
    claim: Claim,
    *,
    runs: int = RUNS,
    pairs: int = PAIRS,
    level: float = LEVEL,
    seconds: float | None = None,
    premises_only: bool = False,
    seed: int | None = None,
    folder: Path | str | None = None,
    code: Code | None = None,
) -> Report:
    """Audit `train`, which the tool calls once for every run with a `Run`.

    runs: for the bound, on each of the two data sets. pairs: of runs on equal seeds, for the
    premises. level: confidence of all that is said to be wrong, shared by premises and adversaries.
    seconds: no run begins after so long; what there is by then is judged. Fewer than 2 pairs, or
    than 8 runs on each data set, contradict nothing. seed: of everything, by default secret and
    new. folder: runs are kept there, and an audit that was stopped goes on. code: digests of what
    is audited, which must be the same then. Each time that more of its runs are judged is a test of
    its own, at `level`: the report counts them.

    Raises InputError for bad settings, a training that fails, and a folder of another audit.
    """
    if seconds is not None:
        real(gt=0).check("seconds", seconds)
    claim.profile()  # Bad claims fail before the first run.
    store = _Store(folder, claim, code or code_of(train), seed)
    began = time.monotonic()

    def until(share: float) -> float:
        return np.inf if seconds is None else began + share * seconds

    if claim.canaries > 1:
        if premises_only:
            raise InputError("premises_only", "several canaries", "one canary, in pairs of runs")
        one_run = _one_run(train, claim, store, level)
        took = time.monotonic() - began
        return Report(claim, (), (), level, store.seed, took, one_run=one_run, looks=(level,))

    def timely(run: Run) -> Any:
        if time.monotonic() > until(1.0):
            raise OutOfTime
        return train(run)

    collected = _pairs(timely, claim, pairs, store, until(1.0 if premises_only else TIME_OF_PAIRS))
    store.keep_code()
    error = 1 - level
    rows = premises(claim, collected, error if premises_only else error / 2)
    attacks: list[Attack] = []
    many, missing = 0, ""
    if len(collected) < FEWEST_PAIRS:
        missing = f"{len(collected)} of at least {FEWEST_PAIRS} pairs"
    elif not premises_only:
        adversaries = Adversaries(claim, collected)
        scores = _scores(timely, claim, adversaries, runs, store)
        many = len(scores[True])
        if many < FEWEST_RUNS:
            missing = f"{many} of at least {FEWEST_RUNS} runs on each data set"
        else:
            attacks = _attacks(claim, adversaries.names, scores, error / 2)
    return Report(
        claim,
        tuple(rows),
        tuple(attacks),
        level,
        store.seed,
        time.monotonic() - began,
        pairs=len(collected),
        pair_runs=sum(
            2
            + (pair.repeated is not None)
            + 2 * (pair.silent is not None)
            + (pair.replayed is not None)
            for pair in collected
        ),
        facts=measured(claim, collected),
        runs=many,
        missing=missing,
        absent=is_absent(claim, collected),
        looks=store.looked(len(collected), many, level) if rows else (),
    )


# Numbers of pairs and of runs that were judged, and the confidence level.
Look = Annotated[list[Number], Field(min_length=3, max_length=3)]


class _Facts(Model):
    """What `audit.json` in the folder of an audit holds; code: digests of what is audited."""

    claim: dict[str, Any]
    code: dict[str, str]
    seed: Annotated[int, Field(ge=0)]
    looks: list[Look]


class _Scores(Model):
    """The scores of a run by the adversaries that so many pairs taught."""

    run: int
    member: bool
    pairs: int
    adversaries: list[str]
    scores: list[float]


class _Store:
    """The runs that are kept in a folder, or nowhere."""

    def __init__(self, folder: Path | str | None, claim: Claim, code: Code, seed: int | None):
        self.folder = None if folder is None else Path(folder)
        self.seed = secrets.randbits(64) if seed is None else int(seed)
        self._claim, self._code = claim.as_dict(), code
        # Digests of an earlier audit's files: this one may import some of them later, or never.
        self._known: dict[str, str] = {}
        self._looks: list[Look] = []
        if seed is not None:
            integer(ge=0).check("seed", seed)
        if self.folder is None:
            return
        head = self.folder / "audit.json"
        if not head.is_file():
            self.keep_code()
            return
        known = read_checked(head, _Facts)
        now = {**known.code, **code(known.code)}
        for key, same in (("claim", known.claim == self._claim), ("code", known.code == now)):
            if not same:
                allowed = "the same claim and code, or another folder"
                raise InputError(str(self.folder), f"an audit of another {key}", allowed)
        if seed is not None and known.seed != seed:
            raise InputError("seed", seed, f"{known.seed}, of the audit in {self.folder}")
        self.seed, self._known, self._looks = known.seed, known.code, known.looks

    def keep_code(self) -> None:
        """Write what is audited; once more when the training has imported its files."""
        if self.folder is None:
            return
        facts = {"claim": self._claim, "code": self._code(self._known), "seed": self.seed}
        facts["looks"] = self._looks
        try:
            write_json(self.folder / "audit.json", facts)
        except OSError as error:
            found = error.strerror or type(error).__name__
            raise InputError(f"folder {self.folder}", found, "one that can be written") from None

    def looked(self, pairs: int, runs: int, level: float) -> tuple[float, ...]:
        """The confidence level of every look at the runs of this audit, this one included."""
        if (look := [pairs, runs, level]) not in self._looks:
            self._looks.append(look)
            self.keep_code()
        return tuple(level for *_, level in self._looks)

    def kept(
        self,
        name: str,
        make: Callable[[], dict[str, np.ndarray]],
        parse: Callable[[dict[str, np.ndarray]], T],
    ) -> T:
        """Named arrays, parsed: of the file of this name if it is there, else made and kept.

        InputError for a file that is damaged.
        """
        if self.folder is None:
            return parse(make())
        path = self.folder / name
        if path.is_file():
            try:
                return parse(read_arrays(path))
            except (OSError, KeyError, TypeError, ValueError):
                allowed = "delete it: its runs are made again"
                raise InputError(str(path), "a damaged file", allowed) from None
        arrays = make()
        with replacing(path) as stream:
            np.savez(stream, **arrays)  # type: ignore[arg-type]
        return parse(arrays)

    def known_scores(self, teachers: Mapping[str, Any]) -> dict[tuple[int, bool], list[float]]:
        """Scores of finished runs, by run and member; of none that other pairs taught."""
        scores = {}
        path = None if self.folder is None else self.folder / RUNS_FILE
        for line in path.read_bytes().splitlines() if path is not None and path.is_file() else ():
            with suppress(ValueError):  # the line that a killed audit was writing
                row = _Scores.model_validate_json(line)
                whole = len(row.scores) == len(row.adversaries)
                if whole and row.plain(*teachers) == teachers:
                    scores[row.run, row.member] = row.scores
        return scores

    def keep_scores(self, row: dict[str, Any]) -> None:
        """Keep the scores of a run."""
        if self.folder is not None:
            with (self.folder / RUNS_FILE).open("a", encoding="utf-8") as stream:
                stream.write("\n" + json.dumps(row))


def _seed(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def _pairs(train: Train, claim: Claim, many: int, store: _Store, until: float) -> list[Pair]:
    def arrays(number: int, rounding: float) -> dict[str, np.ndarray]:
        if time.monotonic() > until:
            raise OutOfTime
        seed = _seed(store.seed, OF_PAIRS, number)
        pair = run_pair(
            train,
            claim,
            seed,
            repeat=number < REPEATED_PAIRS,
            rounding=rounding,
            silence=number % SILENCED_EVERY == 0,
        )
        return to_arrays(pair)

    collected: list[Pair] = []
    rounding = 0.0
    with Progress(2 * many, "premises: runs") as progress, suppress(OutOfTime):
        for number in range(many):
            make = functools.partial(arrays, number, rounding)
            pair = store.kept(f"pairs/{number:05d}.npz", make, from_arrays)
            collected.append(pair)
            rounding = max(rounding, pair.repeated or 0.0)
            progress.advance(units=2)
    names = {tuple(sorted(pair.without.published)) for pair in collected}
    if len(names) > 1:
        raise InputError("published", "other names in other runs", "the same names in every run")
    worlds = [world for pair in collected for world in (pair.without, pair.with_)]
    sizes = {len(world.total) for world in worlds if world.sums}
    if len(sizes) > 1:
        found = f"{' and '.join(map(str, sorted(sizes)))} numbers in different runs"
        raise InputError("run.see", found, "as many in every run")
    return collected


def _scores(
    train: Train, claim: Claim, adversaries: Adversaries, runs: int, store: _Store
) -> dict[bool, np.ndarray]:
    """(runs, adversaries) of the runs with the canary and of those without."""
    teachers = {"pairs": adversaries.pairs, "adversaries": list(adversaries.names)}
    rows = store.known_scores(teachers)
    with Progress(2 * runs, "bound: runs") as progress, suppress(OutOfTime):
        for number in range(runs):
            for member in (True, False):
                if (number, member) not in rows:
                    seed = _seed(store.seed, OF_RUNS, number, int(member))
                    observed = Observed()
                    watched = functools.partial(adversaries.observe, observed)
                    published = execute(train, Run(claim, seed, np.array([member]), watched))
                    scores = adversaries.scores(observed, published)
                    rows[number, member] = scores
                    store.keep_scores(
                        {"run": number, "member": member, **teachers, "scores": scores}
                    )
                progress.advance()
    finished = [
        number for number in range(runs) if {(number, True), (number, False)} <= rows.keys()
    ]
    return {
        member: np.array([rows[number, member] for number in finished]) for member in (True, False)
    }


def _attacks(
    claim: Claim, names: Sequence[str], scores: dict[bool, np.ndarray], error: float
) -> list[Attack]:
    """The bounds of the adversaries that look best on the selecting runs, at a shared error.

    It is shared by two tests of each as well: the bound at the claim's delta, and the profile.
    """
    columns = {
        name: (with_, without)
        for name, with_, without in zip(names, scores[True].T, scores[False].T, strict=True)
    }
    selecting = slice(None, None, SELECTION_STRIDE)

    def apart(name: str) -> float:
        with_, without = columns[name]
        return separation(with_[selecting], without[selecting])

    best = sorted(names, key=lambda name: -apart(name))[:ADVERSARIES]
    level = 1 - error / (2 * max(1, len(best)))
    epsilons, deltas = claim.profile()
    return [
        Attack(
            name,
            epsilon_lower_bound(*columns[name], claim.delta, level),
            profile_excess(*columns[name], epsilons, deltas, level) if len(epsilons) else None,
        )
        for name in best
    ]


def _one_run(train: Train, claim: Claim, store: _Store, level: float) -> OneRunTest:
    """One run with every canary in or out by a coin, and the test of the whole profile."""
    coins = np.random.default_rng(_seed(store.seed, OF_COINS)).random(claim.canaries) < 0.5

    def scores() -> dict[str, np.ndarray]:
        with Progress(1, "one run") as progress:
            published = execute(train, Run(claim, _seed(store.seed, OF_RUNS), coins))
            progress.advance()
        fitting = [each for each in published.values() if len(each) == claim.canaries]
        if len(fitting) != 1:
            sizes = ", ".join(f"{name} of {len(each)}" for name, each in published.items())
            allowed = f"one array of {claim.canaries} scores, larger for canaries that look in"
            raise InputError("published", sizes or "nothing", allowed)
        return {"scores": fitting[0]}

    kept = store.kept("one_run.npz", scores, lambda arrays: arrays["scores"])
    return one_run_profile_test(kept, coins, *claim.profile(), level)
