"""A Hugging Face Trainer that trains by private steps.

    trainer = PrivateTrainer(model, args, train_dataset=dataset, epsilon=3.0, delta=1e-5)
    trainer.train()

The loop, callbacks, evaluation, logs and checkpoints are the Trainer's. Where it would step its
optimizer, the engine (`dpatlas.privacy.training`) takes a step: batches, clipping, noise, update
and ledger are its own. What the arguments ask for and the engine does not do is refused.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer, get_scheduler

from dpatlas.accounting.samplers import Poisson
from dpatlas.base.checkpoints import Checkpoints
from dpatlas.base.files import write_json
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.loops.shared import Items, PrivateSteps
from dpatlas.privacy.calibration import at_epsilon
from dpatlas.privacy.optimizers import BETA1, BETA2, EPSILON, ParameterGroup
from dpatlas.privacy.phases import TrainingPhase
from dpatlas.privacy.saved import LEDGER, remember_values
from dpatlas.privacy.training import PrivateTraining

# Arguments that no private step follows, with the values that ask for nothing.
NOT_FOLLOWED: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("fp16", "push_to_hub", "auto_find_batch_size"), (False,)),
    **dict.fromkeys(("deepspeed", "fsdp", "optim_args"), (None, "", [], False)),
    **{"label_smoothing_factor": (0,), "n_gpu": (1, 0)},
}
OPTIMIZERS = {"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "sgd": "sgd"}
# Keys of logs that a private step has no value for: the loss of records would carry no noise.
WITHOUT_NOISE = ("loss", "grad_norm", "train_loss")
STATE, IDENTITY = "private", {"training": "PrivateTrainer"}


class PrivateTrainer(Trainer):
    """A Trainer whose steps are those of a `PrivateTraining`, which it keeps as `private`.

    noise_multiplier; or epsilon and delta (None: `default_delta`), which all planned steps meet.
    noise: by default of the operating system. groups: (n,) integers, the person of each item.
    `args.max_grad_norm` is the clip bound, and a step has a Poisson batch, of as many expected
    records as a Trainer's: those on a device, times accumulated steps, times processes. Steps and
    epochs, learning rate and its scheduler, weight decay, `bf16`, the model's own loss and the
    strategies of logging, evaluation and saving are as in a Trainer. The collator gets one item at
    a time, and items need one shape.

    Logs have `epsilon` so far and no training loss. A saved model has its `ledger.json`. A
    checkpoint continues to the same bits, and its folder `private` holds the secret of the noise:
    release models saved by `save_model`.

    Raises InputError for what no private step follows, and where noise_multiplier and epsilon are
    both given or both missing.
    """

    optimizer: Any

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        *others: Any,
        noise_multiplier: float | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        noise: Noise | None = None,
        groups: Any = None,
        **named: Any,
    ):
        # Before a Trainer makes anything of them, such as a repository of a hub.
        for name, plain in NOT_FOLLOWED.items():
            if (found := getattr(args, name, plain[0])) not in plain:
                raise InputError(name, found, f"{plain[0]!r} in a private training")
        super().__init__(model, args, *others, **named)
        if (noise_multiplier is None) == (epsilon is None):
            raise InputError("epsilon", epsilon, "either epsilon or noise_multiplier")
        evaluated = self.eval_dataset
        several = evaluated.values() if isinstance(evaluated, dict) else [evaluated]
        if any(each is self.train_dataset is not None for each in several):
            allowed = "public records: what is logged of them carries no noise"
            raise InputError("eval_dataset", "train_dataset", allowed)
        self.noise_multiplier, self.epsilon, self.delta = noise_multiplier, epsilon, delta
        self.noise, self.groups = noise or Noise(), groups
        self.private: PrivateTraining | None = None
        loaded_from = getattr(self.model, "name_or_path", "")
        if loaded_from and Path(loaded_from, LEDGER).is_file():
            remember_values(self.model.parameters())
        if self.args.optim not in OPTIMIZERS:
            raise InputError("optim", str(self.args.optim), ", ".join(OPTIMIZERS))
        for name, own in (
            ("compute_loss", type(self).compute_loss is not Trainer.compute_loss),
            ("compute_loss_func", self.compute_loss_func is not None),
            ("optimizers", self.optimizer is not None or self.lr_scheduler is not None),
            ("optimizer_cls_and_kwargs", self.optimizer_cls_and_kwargs is not None),
        ):
            if own:
                raise InputError(name, "one's own", "the loss of the model's output, args.optim")

    def train(self, *arguments: Any, **named: Any) -> Any:
        """As a Trainer does; the training loss of the result is nan."""
        result = super().train(*arguments, **named)
        if self.private is not None and self.private.steps_done == self.private.steps:
            # Processes must have come to the same weights.
            self.private.run()
        metrics = {k: v for k, v in result.metrics.items() if k not in WITHOUT_NOISE}
        return result._replace(training_loss=math.nan, metrics={**metrics, **self._so_far()})

    def get_train_dataloader(self) -> Any:
        """Numbers of parts of an epoch's steps: the engine draws the batches."""
        parts = self._batches().steps_in(1) * self.args.gradient_accumulation_steps
        return DataLoader([{"part": part} for part in range(parts)])  # type: ignore[arg-type]

    def create_optimizer(self, model: Any = None) -> Any:
        """The private steps, as an optimizer."""
        if self.optimizer is not None:
            return self.optimizer
        args, batches = self.args, self._batches()
        steps = args.max_steps
        if steps <= 0:
            steps = math.ceil(args.num_train_epochs * batches.steps_in(1))
        decayed = self.get_decay_parameter_names(self.model)
        others = [
            name
            for name, value in self.model.named_parameters()
            if value.requires_grad and name not in decayed
        ]
        phase = TrainingPhase(
            batches,
            1.0 if self.noise_multiplier is None else self.noise_multiplier,
            max_grad_norm=args.max_grad_norm,
            steps=steps,
            lr=args.learning_rate,
            optimizer=_optimizer(args),
            weight_decay=args.weight_decay,
            max_physical_batch=args.train_batch_size,
            lr_schedule=_schedule(args, steps),
            parameter_groups=tuple(ParameterGroup(name, weight_decay=0.0) for name in others),
        )
        phases: tuple[TrainingPhase, ...] = (phase,)
        if self.epsilon is not None:
            phases = at_epsilon(phases, self.epsilon, self.delta)
        loader = super().get_train_dataloader()
        self.model.train()
        self.private = PrivateTraining(
            self.model,
            phases,
            Items(loader.dataset, lambda item: _alone(loader.collate_fn([item]))),
            noise=self.noise,
            loss=loss_of_output,
            groups=self.groups,
            autocast=torch.bfloat16 if args.bf16 else None,
            processes=dist.group.WORLD if args.world_size > 1 else None,
        )
        self.optimizer = PrivateSteps(self.private)
        return self.optimizer

    def training_step(self, *_: Any) -> Tensor:
        """Nothing: all of a step is the optimizer's."""
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], *arguments: Any, **named: Any) -> None:
        """Values of a training without the loss, and with epsilon so far; others as they are."""
        if not logs.keys().isdisjoint(WITHOUT_NOISE):
            logs = {name: each for name, each in logs.items() if name not in WITHOUT_NOISE}
            logs |= self._so_far()
        super().log(logs, *arguments, **named)

    def save_model(self, output_dir: str | None = None, **named: Any) -> None:
        """As a Trainer does, with the ledger of the steps so far as `ledger.json`."""
        super().save_model(output_dir, **named)
        if self.private is not None and self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            write_json(folder / LEDGER, self.private.ledger(self.delta))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        if self.private is not None and self.args.should_save and not self.args.save_only_model:
            Checkpoints(folder / STATE, IDENTITY).save("state", *self.private.state())

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or self.private is None:
            return
        state = Checkpoints(Path(checkpoint, STATE), IDENTITY).load("state")
        if state is None:
            allowed = "a checkpoint of a PrivateTrainer, with its folder `private`"
            raise InputError("resume_from_checkpoint", checkpoint, allowed)
        self.private.restore(*state)

    def _batches(self) -> Poisson:
        args = self.args
        units = self.train_dataset if self.groups is None else np.unique(np.asarray(self.groups))
        expected = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return Poisson(len(units), expected)

    def _so_far(self) -> dict[str, float]:
        """Epsilon of the steps taken, where it is finite."""
        epsilon = self.private.guarantee(self.delta).epsilon if self.private else math.inf
        return {"epsilon": epsilon} if math.isfinite(epsilon) else {}


def loss_of_output(output: Any, _: None) -> Tensor:
    """The loss that a model's output has."""
    loss: Tensor = output["loss"] if isinstance(output, dict) else output[0]
    return loss


def _alone(batch: Any) -> dict[str, Tensor]:
    """The one item of a batch."""
    return {name: values[0] for name, values in batch.items()}


def _optimizer(args: Any) -> Any:
    """The engine's own rule, or torch's AdamW where Adam's constants are others."""
    name, betas = OPTIMIZERS[args.optim], (args.adam_beta1, args.adam_beta2)
    if name == "sgd" or (*betas, args.adam_epsilon) == (BETA1, BETA2, EPSILON):
        return name
    return partial(torch.optim.AdamW, betas=betas, eps=args.adam_epsilon)


def _schedule(args: Any, steps: int) -> Any:
    """The factors of a scheduler of learning rates; InputError for one that sees metrics."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    warmup, settings = args.get_warmup_steps(steps), args.lr_scheduler_kwargs
    made = get_scheduler(
        args.lr_scheduler_type, optimizer, warmup, steps, scheduler_specific_kwargs=settings
    )
    if not hasattr(made, "lr_lambdas"):
        allowed = "one whose learning rate follows from the step"
        raise InputError("lr_scheduler_type", str(args.lr_scheduler_type), allowed)
    return made.lr_lambdas[0]
