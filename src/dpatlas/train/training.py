"""Trains by the settings, and writes record, weights, ledger and card."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dpatlas.accounting.guarantees import composition, default_delta, default_relation, guarantee
from dpatlas.accounting.ledger import UNTOLD, Ran, ledger, tuning_of
from dpatlas.accounting.samplers import FullBatch, sampler
from dpatlas.accounting.selection import Score, calibrate_selected, trials_law
from dpatlas.base.guard import real
from dpatlas.base.progress import EpsilonSoFar, Progress, say
from dpatlas.base.scripts import error_place
from dpatlas.base.seeds import Noise, seed
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, Outcome
from dpatlas.jobs.resume import Stages
from dpatlas.privacy.calibration import at_epsilon
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.saved import remember_values, save_model
from dpatlas.privacy.training import PrivateTraining, array_of, tensor_of
from dpatlas.train.inputs import Inputs
from dpatlas.train.trials import Choice

PACKAGES = ("torch", "numpy", "scipy", "dp-accounting")
# Arms, and a bound above the norm of any gradient that leaves finite weights.
ARMS = ("no privacy", "batches", "clip", "noise")
UNCLIPPED = 1e30
# Begins the names of weights in the result of a run.
WEIGHTS = "weights/"


@dataclass(frozen=True)
class Shown:
    """What is shown and saved beside the record.

    models: folder that trained networks are saved in; None for none. private_loss: whether the
    progress shows the loss of training records, which carries no noise.
    """

    models: Path | None = None
    progress: bool = True
    private_loss: bool = False


def _step_in_words(training: PrivateTraining) -> Callable[[], None]:
    """The step of a training of other people's code, of whose exceptions it makes InputErrors."""
    step = training.step

    def step_in_words() -> None:
        try:
            step()
        except (InputError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # a stranger's code may raise anything
            where, found = _where(error, training.model), error_place(error).splitlines()[0]
            allowed = "records and targets that network and loss take"
            raise InputError(where, f"fails: {found}", allowed) from error

    return step_in_words


def _where(error: Exception, model: nn.Module) -> str:
    """The innermost layer that was called as the error occurred; of a traced step, both."""
    names = {id(module): name for name, module in model.named_modules()}
    trace, where = error.__traceback__, "network or loss"
    while trace is not None:
        layer = trace.tb_frame.f_locals.get("self")
        if isinstance(layer, nn.Module) and id(layer) in names:
            name, kind = names[id(layer)], type(layer).__name__
            where = f"layer {name} ({kind})" if name else f"model ({kind})"
        trace = trace.tb_next
    return where


class TrainingBySettings:
    """Trainings by the settings: their plan, and what they give as a job."""

    def __init__(self, inputs: Inputs, scores: Sequence[str] = ()):
        """scores: those of `class_scores` that an outcome has beside accuracy and loss."""
        self.inputs, self.settings, self.scores = inputs, inputs.settings, scores
        # Warnings of ledgers beside their own.
        self.reservations: list[str] = []
        phase = inputs.phase()
        planned = phase.accounted_phases
        self.accounts: dict[str, Any] = {
            "delta": self.settings.delta or default_delta(inputs.units),
            "relation": self.settings.relation or default_relation(planned),
        }
        if self.accounts["delta"] > 1 / inputs.units:
            allowed = f"at most 1 / {inputs.units}: more would let one publish a random record"
            raise InputError("delta", self.accounts["delta"], allowed)
        if inputs.canaries:
            most = 1 / (2 * inputs.canaries.number)
            real(gt=0, le=most).check("delta beside canaries", self.accounts["delta"])
        self.choice = self._choice()
        if self.settings.epsilon is not None:
            phase = self._calibrated(phase)
        elif phase.noise_multiplier:
            # Refused before anything is trained.
            guarantee(phase.accounted_phases, **self.accounts)
        self.phase = phase

    @property
    def identity(self) -> dict[str, Any]:
        """Settings, and digests of files and records: what tells two trainings apart."""
        inputs = self.inputs
        parts = {"data": inputs.train, "test": inputs.test, "validation": inputs.validation}
        return {
            # With all defaults, so that to write one down makes no other training.
            "settings": self.settings.identity,
            "files": dict(sorted(inputs.files.items())),
            "records": {key: each.digest for key, each in parts.items() if each is not None},
        }

    def outcome(self, job: Job, shown: Shown = Shown()) -> Outcome:
        """Train as a job, and save the networks.

        Facts of the outcome: n, n_test: records (canaries counted), or persons, that batches are
        drawn from, and test records. accuracy, loss: on test records, means over the runs; None
        where there are none or they have no classes. skipped_records: gradients that were not
        finite, a private count. selected, score: of the released trial of a selection. audit: what
        canaries show. `runs` has a row for each network.
        """
        noise = Noise(job.spec.digest, self.settings.noise_source)
        if not self.phase.noisy:
            say(f"{job.spec.id}: no noise, so this training is NOT private; its ledger says so")
        return self._select(job, noise, shown) if self.choice else self._train(job, noise, shown)

    def _train(self, job: Job, noise: Noise, shown: Shown) -> Outcome:
        runs, steps, stages = self.settings.runs, self.phase.steps, Stages(job, noise)
        finished: list[dict[str, Any]] = []
        bar = Progress(runs * steps, job.spec.id) if shown.progress else None

        def train_run(number: int) -> dict[str, Any]:
            network = self.inputs.network(self._seed(number), job.device)
            training = self._training(network, noise, self.phase, number)
            note = self._note(training, [Ran.of(each["ran"]) for each in finished], shown)

            def after_step() -> None:
                if bar:
                    bar.reach(number * steps + training.steps_done, note)

            stages.finish(training, after_step)
            return self._result(training)

        with bar or nullcontext():
            for number in range(runs):
                finished.append(stages.result(f"run-{number}", partial(train_run, number)))
                if bar:
                    bar.reach((number + 1) * steps)
        entries = self._ledger(finished)
        for number, result in enumerate(finished):
            model = self.inputs.network(self._seed(number), job.device)
            name = "model" if runs == 1 else f"model-{number}"
            self._save(shown, name, _stored_weights(result, model), entries, result["measured"])
        audit = None
        if canaries := self.inputs.canaries:
            assert self.settings.canaries is not None
            level = self.settings.canaries.level
            phases = self.phase.accounted_phases
            scores = finished[0]["canary_scores"]
            audit = canaries.verdict(scores, phases, self.accounts["delta"], level)
        rows = [
            {**each["measured"], "skipped_records": each["skipped_records"]} for each in finished
        ]
        return self._outcome(rows, entries, audit=audit)

    def _result(self, training: PrivateTraining) -> dict[str, Any]:
        """What the job keeps of a finished run; the weights are averaged ones if there are any."""
        model, canaries = _with_average(training), self.inputs.canaries
        remember_values(training.trained.values())
        return {
            "ran": training.ran.facts(),
            "ledger": training.ledger(**self.accounts),
            "measured": self.inputs.measured(model, str(training.device)),
            "skipped_records": training.skipped_records,
            "canary_scores": canaries.scores(model).tolist() if canaries else None,
            **_weights_to_store(model),
        }

    def arms(self, noise: Noise, device: str) -> list[dict[str, Any]]:
        """A row for each arm: no privacy, batches as the sampler draws them, the clip, the noise.

        Each has what those before it have; all have the same initial weights, steps and rates, and
        all but the first the same batches. A row has means over the runs of accuracy, loss and
        `scores` on test records, None where there are none, and epsilon, None without noise.

        Raises InputError without noise or test records, and with select or canaries.
        """
        phase, given, batches = self.phase, self.settings, self.phase.sampler
        if given.select or given.canaries or not phase.noisy or self.inputs.test is None:
            allowed = "noise and test records, without select and canaries"
            raise InputError("--arms", "other settings", allowed)
        clipped = replace(phase, noise_multiplier=0.0, noise_schedule=None)
        drawn = replace(clipped, clipping="flat", max_grad_norm=UNCLIPPED)
        full = isinstance(batches, FullBatch)
        shuffled = batches if full else sampler("shuffled", batches.n, batches.batch)
        free = replace(drawn, sampler=shuffled)
        rows = []
        for name, arm in zip(ARMS, (free, drawn, clipped, phase), strict=True):
            runs = []
            for run in range(given.runs):
                network = self.inputs.network(self._seed(run), device)
                training = self._training(network, noise, arm, run)
                training.run()
                runs.append(self.inputs.measured(_with_average(training), device))
            spent = guarantee(arm.accounted_phases, **self.accounts) if arm.noisy else None
            names = ("n_test", "accuracy", "loss", *self.scores)
            means = {each: _mean(runs, each) for each in names}
            rows.append({"arm": name, "epsilon": spent and spent.epsilon, **means})
        return rows

    def _note(
        self, training: PrivateTraining, finished: Sequence[Ran], shown: Shown
    ) -> Callable[[], str]:
        """What the progress shows beside the steps: epsilon of all steps so far.

        The loss of training records is shown on request alone: it carries no noise, and a
        terminal's output ends up in logs.
        """

        def epsilon() -> float:
            phases = [*(each.phases for each in finished), training.ran.phases]
            return composition(phases, **self.accounts).epsilon if self.phase.noisy else math.inf

        before = sum(phase.steps for each in finished for phase in each.phases)
        note = EpsilonSoFar(epsilon, lambda: before + training.steps_done)
        if not shown.private_loss:
            return note
        return lambda: f"{note()}, loss {self.inputs.loss_of(training)} of records (private)"

    def _ledger(self, finished: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The ledger of all runs, with what each says of the network that it trained."""
        runs, tried = [Ran.of(each["ran"]) for each in finished], self.settings.settings_tried
        averaged = self.settings.ema_decay is not None
        entries = ledger(
            runs,
            chosen_on_private_data=None if tried else [UNTOLD],
            tuning=tuning_of([runs[0]] * tried, runs, declared=True, **self.accounts)
            if tried
            else None,
            released="the average of the iterates" if averaged else "the last iterate",
            require_private=self.settings.epsilon is not None,
            **self.accounts,
        )
        warnings = [word for each in finished for word in each["ledger"]["warnings"]]
        said = [*entries["warnings"], *warnings, *self.reservations]
        entries["warnings"] = list(dict.fromkeys(said))
        return {**entries, "traced": finished[0]["ledger"]["traced"]}

    def _select(self, job: Job, noise: Noise, shown: Shown) -> Outcome:
        inputs, choice, stages = self.inputs, self.choice, Stages(job, noise)
        assert choice is not None and inputs.validation is not None
        validated = inputs.validation.on(job.device).n
        planned, bound = self.phase.accounted_phases, self.phase.max_grad_norm
        ran = Ran("DP-SGD", planned, (bound,) * len(planned), noise.source)
        # Refused before anything is trained.
        choice.ledger(ran, **self.accounts)
        # Settings and score, facts for the ledger, and weights of the best trial so far.
        best: dict[str, Any] = {}
        say(f"{job.spec.id}: the number of trials is secret: no progress is shown")

        def secret_network(trial: int) -> nn.Module:
            """A network whose initial weights are as secret as the noise."""
            return inputs.network(noise.key(trial, 0, "init") % 2**63, job.device)

        def if_best(trial: int) -> dict[str, Any]:
            """What the job keeps of a trial; nothing unless it scores above all before it."""
            settings: dict[str, Any] = choice.settings(noise, trial)
            phase = replace(self.phase, **settings)
            training = self._training(secret_network(trial), noise, phase, trial)
            # Saved before the first step, since the number of trials depends on the noise's secret.
            stages.save()
            stages.finish(training)
            right = inputs.right(training.model, job.device)
            score = right / validated
            if choice.score is not None:
                score = choice.score.released(right, noise, trial)
            if best and score <= best["best"]["score"]:
                return {}
            kept = {"settings": settings, "score": score}
            weights = _weights_to_store(training.model)
            return {"best": kept, "ran": training.ran.facts(), **weights}

        for trial in range(choice.law.draw(noise)):
            best = stages.result(f"trial-{trial}", partial(if_best, trial)) or best
        entries = choice.ledger(Ran.of(best["ran"]) if best else ran, **self.accounts)
        entries["warnings"] += self.reservations
        if not best:
            return self._outcome([], entries)
        model = secret_network(0)
        model.load_state_dict(_stored_weights(best, model))
        measured = inputs.measured(model, job.device)
        self._save(shown, "model", model.state_dict(), entries, measured)
        selected = {"selected": best["best"]["settings"], "score": best["best"]["score"]}
        return self._outcome([{**measured, "skipped_records": None}], entries, **selected)

    def _training(
        self, model: nn.Module, noise: Noise, phase: TrainingPhase, repetition: int
    ) -> PrivateTraining:
        training = PrivateTraining(
            model,
            [phase],
            self.inputs.train.x,
            self.inputs.train.y,
            noise=noise,
            repetition=repetition,
            loss=self.inputs.loss,
            augmentation=self.inputs.augmentation(),
            ema_decay=self.settings.ema_decay,
            groups=self.inputs.train.groups,
            workers=self.settings.workers,
        )
        # Not a class of its own: that would count as another mechanism, with noise of its own.
        training.step = _step_in_words(training)  # type: ignore[method-assign]
        return training

    def _seed(self, run: int) -> int:
        """The seed of a run's initial weights: that of the settings for the first one."""
        base = self.settings.seed
        return seed("train", use="init", base=base, run=run) % 2**63 if run else base

    def _save(
        self,
        shown: Shown,
        name: str,
        weights: Mapping[str, torch.Tensor],
        entries: Mapping[str, Any],
        measured: Mapping[str, Any],
    ) -> None:
        """The network as a folder that `load_weights` reads, and `load_model` one with a name."""
        if shown.models is None:
            return
        save_model(
            shown.models / name,
            weights,
            entries,
            settings=self.settings.plain_without("data", "model", "test", "select"),
            # With canaries it is no network that a name builds.
            config=None if self.inputs.canaries else self.inputs.config,
            data=self.settings.data,
            accuracy=_in_words(measured),
            # A killed job writes the same once more.
            replace=True,
        )

    def _choice(self) -> Choice | None:
        select = self.settings.select
        if select is None or self.inputs.validation is None:
            return None
        score = None
        if select.score_noise is not None:
            score = Score(self.inputs.validation.on("cpu").n, select.score_noise)
        ranges = dict(sorted(select.ranges.items()))
        return Choice(trials_law(select.law, select.expected_trials), ranges, score)

    def _calibrated(self, phase: TrainingPhase) -> TrainingPhase:
        """The phase with the noise that the wanted epsilon needs."""
        epsilon = self.settings.epsilon
        assert epsilon is not None
        if self.choice is None:
            return at_epsilon([phase], epsilon, **self.accounts)[0]
        noise = calibrate_selected(
            lambda noise: replace(phase, noise_multiplier=noise).accounted_phases,
            epsilon,
            self.accounts["delta"],
            self.accounts["relation"],
            law=self.choice.law,
            score=self.choice.score,
        )
        return replace(phase, noise_multiplier=noise)

    def _outcome(
        self, measured: Sequence[Mapping[str, Any]], entries: Mapping[str, Any], **further: Any
    ) -> Outcome:
        columns = ("accuracy", "loss", "skipped_records")
        rows = [
            {"run": run, **{name: each.get(name) for name in columns}}
            for run, each in enumerate(measured)
        ]
        facts = {
            "n": self.phase.sampler.n,
            "n_test": measured[0]["n_test"] if measured else 0,
            "noise_multiplier": self.phase.noise_multiplier,
            "expected_batch": self.phase.sampler.expected_batch,
            "steps": self.phase.steps,
            "relation": self.accounts["relation"],
            **{name: _mean(measured, name) for name in ("accuracy", "loss", *self.scores)},
            "skipped_records": _total(measured, "skipped_records"),
        }
        further = {"selected": None, "score": None, "audit": None, **further}
        return Outcome({**facts, **further, "runs": rows}, entries)


def _weights_to_store(model: nn.Module) -> dict[str, np.ndarray]:
    return {f"{WEIGHTS}{name}": array_of(each) for name, each in model.state_dict().items()}


def _stored_weights(result: Mapping[str, Any], model: nn.Module) -> dict[str, torch.Tensor]:
    """Of a result with `_weights_to_store`, for a network like `model`."""
    state = model.state_dict().items()
    return {name: tensor_of(result[f"{WEIGHTS}{name}"], value) for name, value in state}


def _total(runs: Sequence[Mapping[str, Any]], name: str) -> Any:
    """The sum of a value over the runs; None if a run has none."""
    values = [each.get(name) for each in runs]
    return None if not values or None in values else sum(values)


def _mean(runs: Sequence[Mapping[str, Any]], name: str) -> Any:
    total = _total(runs, name)
    return total and total / len(runs)


def _with_average(training: PrivateTraining) -> nn.Module:
    """The trained network, with averaged weights if there are any."""
    if training.ema is not None:
        with torch.no_grad():
            for name, value in training.model.named_parameters():
                value.copy_(training.ema[name])
    return training.model


def _in_words(measured: Mapping[str, Any]) -> str | None:
    """Accuracy or loss with the number of test records; None where there are none."""
    if not measured["n_test"]:
        return None
    what = "{accuracy:.4f}" if "accuracy" in measured else "loss {loss:.4g}"
    if "accuracy" not in measured and measured["loss"] is None:
        what = "a loss that is not finite"
    return f"{what.format(**measured)} on {measured['n_test']} test records"
