"""Trains by the settings, and writes record, weights, ledger and card."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dpatlas.accounting.guarantees import default_delta, default_relation, guarantee
from dpatlas.accounting.ledger import UNTOLD, tuning_of
from dpatlas.accounting.selection import Score, calibrate_selected, trials_law
from dpatlas.config.model import check_shape, validated
from dpatlas.core.checkpoints import Checkpoints
from dpatlas.core.digest import code_digest
from dpatlas.core.files import check_writable, only_process, remove_parts
from dpatlas.core.progress import EpsilonSoFar, Progress, say
from dpatlas.core.records import Stopwatch, make_record, versions, write_record
from dpatlas.core.scripts import error_place
from dpatlas.core.seeds import Noise, recording
from dpatlas.core.specs import Spec
from dpatlas.errors import InputError
from dpatlas.jobs.job import Job, numerics, resolve_device, torch_device
from dpatlas.jobs.resume import Stages
from dpatlas.jobs.trials import Choice, Trials
from dpatlas.privacy.calibration import at_epsilon
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.saved import save_model
from dpatlas.privacy.training import PrivateTraining
from dpatlas.train.earlier import earlier_records, say_what_adds_up
from dpatlas.train.inputs import Inputs
from dpatlas.train.settings import Settings

PACKAGES = ("torch", "numpy", "scipy", "dp-accounting")
KIND = {"key": "train", "kind": "settings_file"}


def train(
    settings: Settings | Mapping[str, Any],
    *,
    output: Path | str,
    base: Path | str = ".",
    name: str = "training",
    device: str = "cpu",
    resume: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Train privately, save the model to OUTPUT/ID/model, and return OUTPUT/ID/record.json.

    settings: the keys of `Settings`. base: the folder that files in them are relative to. name:
    begins ID, which ends with a digest of settings, files and records. A killed training goes on
    when it is called again; `resume` refuses to start from the beginning. One that is finished is
    not trained again: its record is returned.

    Raises InputError for settings, files and records that do not fit, before anything is trained.
    """
    if not isinstance(settings, Settings):
        given = {key: value for key, value in settings.items() if value is not None}
        check_shape(given)
        settings = validated(Settings, given)
    output, device = Path(output), resolve_device(device)
    check_writable(output)
    with numerics(device):
        inputs = Inputs(settings, Path(base))
        return _Training(inputs, output, name, device, resume, progress).record()


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


class _Training:
    """One training: its plan, and what it writes."""

    def __init__(
        self, inputs: Inputs, output: Path, name: str, device: str, resume: bool, progress: bool
    ):
        self.inputs, self.settings = inputs, inputs.settings
        # The record has the full name, cuda-tf32 too; torch knows cuda.
        self.device, self.recorded_device = torch_device(device), device
        self.resume, self.progress, self.output = resume, progress, output
        phase = inputs.phase()
        planned = phase.accounted_phases
        self.accounts: dict[str, Any] = {
            "delta": self.settings.delta or default_delta(inputs.units),
            "relation": self.settings.relation or default_relation(planned),
        }
        if self.accounts["delta"] > 1 / inputs.units:
            allowed = f"at most 1 / {inputs.units}: more would let one publish a random record"
            raise InputError("delta", self.accounts["delta"], allowed)
        self.choice = self._choice()
        if self.settings.epsilon is not None:
            phase = self._calibrated(phase)
        elif phase.noise_multiplier:
            # Refused before anything is trained.
            guarantee(phase.accounted_phases, **self.accounts)
        self.phase = phase
        parts = {"data": inputs.train, "test": inputs.test, "validation": inputs.validation}
        digests = {key: each.digest for key, each in parts.items() if each is not None}
        spec = {
            **KIND,
            # With all defaults, so that to write one down makes no other training.
            "settings": self.settings.whole("workers"),
            "files": dict(sorted(inputs.files.items())),
            "records": digests,
        }
        self.spec = Spec.of(spec, name)
        self.noise = Noise(self.spec.digest, self.settings.noise_source)

    def record(self) -> dict[str, Any]:
        """Train, unless that is done, and return the record."""
        with only_process(self.output, self.spec.id):
            return self._record()

    def _record(self) -> dict[str, Any]:
        folder = self.output / self.spec.id
        path = folder / "record.json"
        earlier = list(earlier_records(self.output))
        for record in earlier:
            if record["spec_digest"] == self.spec.digest:
                # With new noise it would be a second release of the same records.
                say(f"{record['id']}: trained before; its record follows, nothing is trained again")
                return record
        mine = self.spec.fields["records"]["data"]
        if mine is not None:
            say_what_adds_up(
                earlier, lambda record: record["spec"].get("records", {}).get("data") == mine
            )
        stopwatch, code = Stopwatch(), code_digest(__name__)
        identity = {
            "spec": self.spec.digest,
            "code": code,
            "device": self.recorded_device,
            "versions": versions(*PACKAGES),
        }
        store = Checkpoints(self.output / "checkpoints" / self.spec.id, identity)
        remove_parts(folder)
        remove_parts(store.folder)
        if self.resume and not store.trusted():
            allowed = "settings, files, records and device of a training that was interrupted"
            raise InputError("--resume", f"no checkpoint of these in {store.folder}", allowed)
        if not self.phase.noisy:
            say(f"{self.spec.id}: no noise, so this training is NOT private; its ledger says so")
        with recording() as streams:
            job = Job(
                self.spec, self.settings, None, self.device, store, stopwatch, streams=streams
            )
            train = self._select if self.choice else self._train
            metrics, ledger = train(job, folder / "model")
        content = make_record(
            self.spec,
            code_digest=code,
            versions=versions(*PACKAGES),
            device=self.recorded_device,
            data=None,
            seeds={"base": self.settings.seed, **streams.facts()},
            metrics=metrics,
            ledger=ledger,
        )
        write_record(path, content, stopwatch)
        store.clear()
        return content

    def _train(self, job: Job, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        training = self._training(self.inputs.network(self.settings.seed, self.device))
        stages = Stages(job, self.noise)

        def epsilon() -> float:
            phases = training.ran.phases
            return guarantee(phases, **self.accounts).epsilon if self.phase.noisy else math.inf

        note = EpsilonSoFar(epsilon, lambda: training.steps_done)

        def train() -> dict[str, Any]:
            shown = Progress(training.steps, self.spec.id) if self.progress else None
            with shown or nullcontext():
                stages.finish(
                    training,
                    lambda: None if shown is None else shown.reach(training.steps_done, note),
                )
            # The secret too: killed after this, the same training would be written again.
            stages.save(training)
            return {}

        stages.result("training", train)
        if training.ema is not None:
            with torch.no_grad():
                for name, value in training.model.named_parameters():
                    value.copy_(training.ema[name])
        measured = self.inputs.measured(training.model, self.device)
        tried = self.settings.settings_tried
        chosen: dict[str, Any] = {"chosen_on_private_data": [UNTOLD]}
        if tried:
            tuning = tuning_of(
                [training.ran] * tried, [training.ran], declared=True, **self.accounts
            )
            chosen = {"chosen_on_private_data": None, "tuning": tuning}
        ledger = training.save(
            folder,
            data=self.settings.data,
            accuracy=_in_words(measured),
            replace=True,
            **self.accounts,
            **chosen,
        )
        return self._metrics(measured, skipped_records=training.skipped_records), ledger

    def _select(self, job: Job, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        assert self.choice is not None and self.inputs.validation is not None
        trials = Trials(
            job,
            self.noise,
            self.choice,
            self.phase,
            lambda trial, phase: self._training(self._secret_network(trial), phase, trial),
            lambda model: self.inputs.right(model, self.device),
            self.inputs.validation.on(self.device).n,
        )
        # Refused before anything is trained.
        trials.ledger(**self.accounts)
        trials.run()
        ledger = trials.ledger(**self.accounts)
        if trials.best is None:
            return self._metrics({"n_test": 0}), ledger
        model = trials.load_best(self._secret_network(0))
        measured = self.inputs.measured(model, self.device)
        save_model(
            folder,
            model.state_dict(),
            ledger,
            settings=self.settings.plain_without("data", "model", "test", "select"),
            data=self.settings.data,
            accuracy=_in_words(measured),
            replace=True,
        )
        selected = {"selected": trials.best["settings"], "score": trials.best["score"]}
        return self._metrics(measured, **selected), ledger

    def _training(
        self, model: nn.Module, phase: TrainingPhase | None = None, repetition: int = 0
    ) -> PrivateTraining:
        training = PrivateTraining(
            model,
            [phase or self.phase],
            self.inputs.train.x,
            self.inputs.train.y,
            noise=self.noise,
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

    def _secret_network(self, trial: int) -> nn.Module:
        """A network whose initial weights are as secret as the noise."""
        return self.inputs.network(self.noise.key(trial, 0, "init") % 2**63, self.device)

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

    def _metrics(self, measured: Mapping[str, Any], **further: Any) -> dict[str, Any]:
        """What a training gave.

        n, n_test: records, or persons, that batches are drawn from, and test records. accuracy,
        loss: on test records, where there are some. skipped_records: gradients that were not
        finite, a private count. selected, score: of the released trial of a selection.
        """
        return {
            **measured,
            "n": self.phase.sampler.n,
            "noise_multiplier": self.phase.noise_multiplier,
            "expected_batch": self.phase.sampler.expected_batch,
            "steps": self.phase.steps,
            **further,
        }


def _in_words(measured: Mapping[str, Any]) -> str | None:
    """Accuracy or loss with the number of test records; None where there are none."""
    if not measured["n_test"]:
        return None
    what = "{accuracy:.4f}" if "accuracy" in measured else "loss {loss:.4g}"
    if "accuracy" not in measured and measured["loss"] is None:
        what = "a loss that is not finite"
    return f"{what.format(**measured)} on {measured['n_test']} test records"
