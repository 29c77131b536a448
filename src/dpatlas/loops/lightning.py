"""A LightningModule that Lightning's Trainer fits by private steps.

    class PrivateNet(PrivateModule, Net):
        pass

    net = PrivateNet()
    net.train_privately(dataset, [phase], noise=Noise())
    Trainer().fit(net)
    net.private.save("model")

`Net` is a LightningModule of one's own. Its `training_step` is called once, with a batch of one
record, and traced: the loss that it returns is a record's. Lightning keeps the loop, callbacks,
loggers, validation and checkpoints. Batches, clipping, noise, updates and the ledger are the
engine's (`dpatlas.privacy.training`), whatever the loop does.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn

from dpatlas.base.canonical import canonical_json
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.loops.shared import Items, PrivateSteps
from dpatlas.privacy.phases import TrainingPhase, training_phases
from dpatlas.privacy.training import PrivateTraining

# Key of the engine's state in a checkpoint of Lightning. It holds the secret of the noise.
STATE = "dpatlas"
OURS = ("training_step", "train_dataloader", "configure_optimizers")


class PrivateModule(LightningModule):
    """The first base class of a LightningModule that is to be trained privately.

    `private` is its `PrivateTraining`, made when a Trainer starts to fit: its ledger, guarantee and
    `save`. An epoch has the first phase's steps per epoch; the Trainer stops after the last planned
    step, or earlier where it is told to. `epsilon` is logged; what `training_step` logs is not, as
    it carries no noise. A checkpoint continues to the same bits and holds the secret of the noise,
    but for one of weights only: release that, or what `private.save` writes.
    """

    private: PrivateTraining | None = None
    _plan: tuple[Any, ...] | None = None
    _restored: Any = None

    def train_privately(
        self,
        dataset: Any,
        phases: Sequence[TrainingPhase],
        *,
        noise: Noise | None = None,
        **options: Any,
    ) -> None:
        """State what is trained on, to be called before a Trainer fits the module.

        dataset: map-style; its items, collated, are the batches of `training_step`. noise: by
        default of the operating system. options: passed to `PrivateTraining`. Raises InputError
        where another base class comes first.
        """
        for name in OURS:
            if getattr(type(self), name) is not getattr(PrivateModule, name):
                found = f"{name} in front of PrivateModule's"
                raise InputError(type(self).__name__, found, "class Private(PrivateModule, Net)")
        self.automatic_optimization = False
        self.private = None
        self._plan = dataset, training_phases(phases), noise or Noise(), options

    def configure_optimizers(self) -> Any:
        """The private steps, in the form of an optimizer; parameters are on their device by now."""
        if self._plan is None:
            allowed = "train_privately(dataset, phases) first"
            raise InputError(type(self).__name__, "a fit without a plan", allowed)
        strategy, precision = self.trainer.strategy, self.trainer.precision
        if type(strategy) is not SingleDeviceStrategy:
            allowed = "one device; PrivateTraining(processes=...) for several"
            raise InputError("strategy", type(strategy).__name__, allowed)
        if precision != "32-true":
            allowed = "32-true; train_privately(autocast=torch.bfloat16) for products in bfloat16"
            raise InputError("precision", precision, allowed)
        if self.private is not None and self.private.steps_released and self._restored is None:
            # The ledger of another training would not count the steps of this one.
            allowed = "train_privately again, for a training of its own"
            raise InputError(type(self).__name__, "a second fit", allowed)
        if self.trainer.ckpt_path is not None and self._restored is None:
            found, allowed = "one without private steps", "a whole checkpoint of a PrivateModule"
            raise InputError("ckpt_path", found, allowed)
        dataset, phases, noise, options = self._plan
        alone = not isinstance(dataset[0], tuple | list | dict)
        # Of the module's name, which the ledger states.
        loss = type(type(self).__name__, (_RecordLoss,), {})(self, alone)
        # What it logs of a record has no noise.
        self.__dict__.update(dict.fromkeys(("log", "log_dict"), _log_nothing))
        try:
            self.private = PrivateTraining(
                loss, phases, Items(dataset, _as_tuple), noise=noise, loss=_own, **options
            )
        finally:
            del self.__dict__["log"], self.__dict__["log_dict"]
        if self._restored is not None:
            self.private.restore(*self._restored)
            self._restored = None
        return PrivateSteps(self.private)

    def train_dataloader(self) -> Any:
        """Numbers of steps: the engine draws the batches."""
        assert self._plan is not None
        return range(self._plan[1][0].sampler.steps_per_epoch)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One private update; InputError for batches of a loader."""
        training = self.private
        assert training is not None
        if not isinstance(batch, int):
            allowed = "none: train_privately has the dataset, and its sampler draws the batches"
            raise InputError("train_dataloaders", type(batch).__name__, allowed)
        self.optimizers().step()
        last = training.steps_done == training.steps
        if last or training.steps_done % self.trainer.log_every_n_steps == 0:
            epsilon = training.guarantee().epsilon
            if math.isfinite(epsilon):
                self.log("epsilon", epsilon, batch_size=1)
        self.trainer.should_stop |= last

    def record_loss(self, batch: Any) -> Tensor:
        """The loss of a batch of one record, by the `training_step` of one's own."""
        found = super().training_step(batch, 0)
        loss: Tensor = found["loss"] if isinstance(found, Mapping) else found
        return loss

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the engine's state, unless weights alone are saved."""
        super().on_save_checkpoint(checkpoint)
        if self.private is not None and "optimizer_states" in checkpoint:
            arrays, facts = self.private.state()
            tensors = {name: torch.from_numpy(value) for name, value in arrays.items()}
            checkpoint[STATE] = {"arrays": tensors, "facts": canonical_json(facts)}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the engine's state for the training that goes on from it."""
        super().on_load_checkpoint(checkpoint)
        if (state := checkpoint.get(STATE)) is not None:
            arrays = {name: value.numpy() for name, value in state["arrays"].items()}
            self._restored = arrays, json.loads(state["facts"])


class _RecordLoss(nn.Module):
    """The loss of a record as a network, with the parts of a module under their own names."""

    _of: Any

    def __init__(self, module: PrivateModule, alone: bool):
        super().__init__()
        self._modules, self._parameters = module._modules, module._parameters
        self._buffers, self.training = module._buffers, module.training
        self._alone = alone
        vars(self)["_of"] = module

    def forward(self, *parts: Tensor, **named: Tensor) -> Tensor:
        """Of the parts of an item, (1, ...) each."""
        return self._of.record_loss(named or (parts[0] if self._alone else list(parts)))


def _own(output: Tensor, _: None) -> Tensor:
    return output


def _as_tuple(item: Any) -> Any:
    return tuple(item) if isinstance(item, list) else item


def _log_nothing(*_: Any, **__: Any) -> None:
    pass
