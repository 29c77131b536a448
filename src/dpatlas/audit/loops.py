"""Adapters: audits of an Opacus training, of any torch training loop, and the canary planted.

    train = opacus(make_private_training, claim, x, y, canary=(canary_x, canary_y))

stands in a script beside `claim`; then `dpatlas audit script.py:train`.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dpatlas.audit.claim import Claim
from dpatlas.audit.run import RECORDS, Run, Train
from dpatlas.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.data import TensorDataset

    Loss = Callable[[Tensor, Tensor], Tensor]
    Score = Callable[[nn.Module], Any]
    # Makes one private update of the model; may return the noisy sum in units of C.
    Step = Callable[[], Any]


def plant(run: Run, records: Any, canaries: Any) -> Any:
    """A copy of `records` whose first ones are the canaries that are in, or a data set like it.

    For the others stand zeros, or under the relation replace_one the records that were there.
    records (n, ...): an array or tensor. canaries: one record (...), or (m, ...) for m of them.
    Of a torch data set, an item or a list of m; `watch_opacus` leaves a blank one no gradient. A
    single canary has a place there that derives from the run's seed: the first record would always
    be in the first micro-batch of a sampler that draws in order.
    Raises InputError for canaries that do not fit the records, their type or their number.
    """
    many, run.has_planted = len(run.included), True
    if not hasattr(records, "shape"):
        run.planted = _Planted(run, records, [canaries] if many == 1 else canaries)
        return run.planted
    planted = records.clone() if hasattr(records, "clone") else np.array(records)
    values = np.asarray(canaries if not hasattr(canaries, "detach") else canaries.detach().cpu())
    shape = tuple(planted.shape[1:])
    if values.shape == shape:
        values = np.broadcast_to(values, (many, *shape))
    if values.shape != (many, *shape) or many > len(planted):
        found = f"canaries of shape {values.shape} for {len(planted)} records of shape {shape}"
        raise InputError("canary", found, f"{many} of the records' shape")
    if hasattr(planted, "new_tensor"):
        own = planted.new_tensor(values)
        real, kept = own.is_floating_point(), own.double().cpu().numpy()
    else:
        own = kept = values.astype(planted.dtype)
        real = own.dtype.kind == "f"
    # The last digits may be lost of real numbers only.
    if not np.allclose(kept, values, rtol=1e-2 if real else 0, equal_nan=True):
        allowed = f"numbers that the records' type, {planted.dtype}, can hold"
        raise InputError("canary", f"{values.dtype} numbers that it changes", allowed)
    if run.claim.relation != "replace_one":
        planted[:many] = 0
    for number in np.flatnonzero(run.included):
        planted[number] = own[number]
    if run.silenced:
        planted[run.silent_places(len(planted))] = own[0]
    return planted


class _Planted:
    """A torch data set with canaries or blank items, which knows what was drawn of it."""

    def __init__(self, run: Run, records: Any, canaries: Any):
        # Of each record drawn, whether its gradient is set to zero.
        self.run, self.records, self.drawn = run, records, list[bool]()
        # How many were drawn before it was watched, and since then for steps.
        self.expected: int | None = None
        self.own: dict[int, Any] = {}
        # How many were drawn before the last clip; whether what was drawn is blank, by digest, None
        # where some is and some is not; and of which lengths it is.
        self.clipped = 0
        self.is_blank: dict[bytes, bool | None] = {}
        self.lengths: set[int] = set()
        one = np.random.default_rng(run.seed).integers(len(records), size=1)
        places = (one if len(run.included) == 1 else np.arange(len(run.included))).tolist()
        self.planted = set(places)
        self.blank = set(np.array(places)[~run.counted].tolist())
        for number, canary in zip(places, canaries, strict=True):
            item = records[number]
            for each in (canary, item):
                if not isinstance(each, tuple | list):
                    allowed = "an array, or items such as (input, label)"
                    raise InputError("records and canary", type(each).__name__, allowed)
            shapes, of_item = ([*map(np.shape, each)] for each in (canary, item))
            if shapes != of_item:
                raise InputError("canary", f"parts of shape {shapes}", f"{of_item}, as of a record")
            included = run.included[places.index(number)]
            self.canary = tuple(map(_as, canary, item))
            if included or run.claim.relation != "replace_one":
                blank = tuple(part * 0 for part in self.canary)
                self.own[number] = self.canary if included else blank

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> Any:
        place = int(index)
        item = self.own[place] if place in self.own else self.records[index]
        blank = place in self.blank
        if self.run.silenced is not None and place not in self.planted:
            # By what it holds: equal records are silent together, also where a loop sorts them.
            blank = _digest(_numbers(item[0]), self.run.seed)[0] % 2 == 0
            item = self.canary if blank and self.run.silenced else item
        self.drawn.append(blank)
        inputs = _numbers(item[0])
        self.lengths.add(len(inputs))
        if self.is_blank.setdefault(_digest(inputs), blank) != blank:
            self.is_blank[_digest(inputs)] = None
        return item

    def blank_rows(self, inputs: "list[Tensor]", rows: int) -> np.ndarray:
        """(rows,) bool: which of the rows that the network was given since the last clip are blank.

        They are found by what they hold, so a loop may sort, repeat or leave out records; where it
        changes what they hold, by the order in which they were drawn.
        """
        since, self.clipped = self.drawn[self.clipped :], len(self.drawn)
        entered = [self._blank(_numbers(row)) for batch in inputs for row in batch]
        found = [blank for blank in entered if blank is not None]
        if not len(found) == len(entered) == rows:
            # Of inputs that were not seen the last that were drawn: some may have been read before.
            found = since if inputs else since[max(0, len(since) - rows) :]
        if len(found) != rows:
            allowed = (
                "one loader without workers, records that reach the network as they are drawn, or "
                "arrays planted with run.loss_weights"
            )
            raise InputError("data loader", f"{rows} rows for {len(since)} records drawn", allowed)
        return np.array(found, dtype=bool)

    def _blank(self, row: np.ndarray) -> bool | None:
        """Whether a record of these numbers, maybe padded, is blank; None if that is not known."""
        fitting = (length for length in sorted(self.lengths, reverse=True) if length <= len(row))
        found = (self.is_blank.get(_digest(row[:length])) for length in fitting)
        return next((blank for blank in found if blank is not None), None)


def _numbers(value: Any) -> np.ndarray:
    """The numbers of a part of a record, flat; zero has one sign."""
    host = value.detach().cpu() if hasattr(value, "detach") else value
    return np.asarray(host, dtype=float).reshape(-1) + 0.0


def _digest(numbers: np.ndarray, seed: int = 0) -> bytes:
    key = seed.to_bytes(16, "little")
    return hashlib.blake2b(numbers.tobytes(), digest_size=16, key=key).digest()


def _as(value: Any, like: Any) -> Any:
    """The value in the type of another."""
    if hasattr(like, "new_tensor"):
        return like.new_tensor(np.asarray(value))
    return like.__class__(value) if np.isscalar(like) else np.asarray(value, np.asarray(like).dtype)


def torch_loop(
    start: "Callable[[Run, Tensor, Tensor, Tensor], tuple[nn.Module, Step]]",
    claim: Claim,
    x: "Tensor",
    y: "Tensor",
    canary: "tuple[Any, Any]",
    loss: "Loss | None" = None,
    score: "Score | None" = None,
) -> Train:
    """The training to audit around one's own torch loop.

    start(run, x, y, present) gives a new model and a function that makes one private update. x
    (n, ...), y (n, ...): the records, the first of which becomes the canary (an input and a target)
    or a blank record. present (n,): 0 for a blank record, else 1; multiply each record's loss by
    it, so that a blank one has no gradient. What an update returns is given to `run.see`: the noisy
    sum of clipped gradients in units of the clip bound; None if it calls `run.see` itself, or if
    the attacker does not see the sums. loss(outputs, targets) -> (records,): by default the
    cross-entropy. Published are the loss of the canary, the trained weights and the buffers; of
    many canaries in one run a score each, score(model) or by default the negative loss.

    Raises InputError for records that do not fit the claim, and for a claim without settings.
    """
    import torch

    per_record = loss or _cross_entropy
    steps = claim.steps
    if steps is None:
        raise InputError("claim", "no settings", "sampler, n, batch, noise and steps")
    if claim.n is not None and claim.n != len(x):
        raise InputError("x", f"{len(x)} records", f"{claim.n}, as the claim says")
    canary_x, canary_y = (torch.as_tensor(each) for each in canary)
    one = canary_x.dim() == x.dim() - 1

    def train(run: Run) -> dict[str, Any]:
        data = (
            plant(run, x, canary_x),
            plant(run, y, canary_y),
            torch.tensor(run.loss_weights(len(x)), dtype=torch.float32),
        )
        model, step = start(run, *data)
        for _ in range(steps):
            noisy_sum = step()
            if noisy_sum is not None:
                run.see(noisy_sum)
            run.weights(model.parameters())
        model.eval()
        with torch.no_grad():
            inputs = canary_x[None] if one else canary_x
            targets = canary_y[None] if one else canary_y
            losses = per_record(model(inputs.to(x.dtype)), targets.to(y.dtype))
        if claim.canaries > 1:
            return {"score": -losses if score is None else score(model)}
        published: dict[str, Any] = {"loss": losses}
        published["weights"] = [each for each in model.parameters() if each.requires_grad]
        published["buffers"] = list(model.buffers())
        return {name: value for name, value in published.items() if len(value)}

    train.claim = claim  # type: ignore[attr-defined]
    return train


def opacus(
    make_private_training: "Callable[[TensorDataset], tuple[Any, Any, Any]]",
    claim: Claim,
    x: "Tensor",
    y: "Tensor",
    canary: "tuple[Any, Any]",
    loss: "Loss | None" = None,
    score: "Score | None" = None,
) -> Train:
    """The training to audit around `PrivacyEngine.make_private`.

    make_private_training(data) gives what make_private returns: model, optimizer and loader. data
    is a TensorDataset of (x, y, present), as in `torch_loop`, which has the other arguments too.
    The adapter makes the claimed number of steps with mean losses, and sees every noisy sum.
    """
    from torch.utils.data import TensorDataset

    per_record = loss or _cross_entropy

    def start(
        run: Run, inputs: "Tensor", targets: "Tensor", present: "Tensor"
    ) -> "tuple[nn.Module, Step]":
        model, optimizer, loader = make_private_training(TensorDataset(inputs, targets, present))
        watch_opacus(run, optimizer)
        batches: Iterator[Any] = iter(())

        def step() -> None:
            nonlocal batches
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            some, of_some, weights = batch
            optimizer.zero_grad()
            losses = per_record(model(some), of_some) * weights
            # The mean; of an empty batch 0.
            (losses.sum() / max(1, len(some))).backward()
            optimizer.step()

        return model, step

    return torch_loop(start, claim, x, y, canary, loss, score)


def watch_opacus(run: Run, optimizer: Any) -> None:
    """Give `run.see` every noisy sum of an Opacus optimizer, in units of its clip bound.

    If `plant` made the data set, blank records lose their gradients before the clip; InputError for
    an optimizer without per-record gradients, and for rows that are not the records drawn, then.
    """
    import torch

    planted, clip, since = run.planted, getattr(optimizer, "clip_and_accumulate", None), [0, 0]
    if planted is not None and (clip is None or hasattr(optimizer, "accumulate")):
        raise InputError("optimizer", type(optimizer).__name__, "one with per-record gradients")
    entered: list[Tensor] = []
    if planted is not None:
        run.can_silence, planted.expected = True, len(planted.drawn)
        planted.clipped = len(planted.drawn)
        run.at_end.append(_watch_inputs(optimizer.params[0], entered))
    run.can_replay = True

    def clip_blank() -> None:
        many = sum(map(len, _parts(optimizer.params[0])))
        if planted is not None:
            if not since[1]:
                run.weights(optimizer.params)
            planted.expected += min(many, len(planted.drawn) - planted.clipped)
            blank = planted.blank_rows(entered, many)
            entered.clear()
            for parameter in optimizer.params:
                place = 0
                for part in _parts(parameter):
                    part[np.flatnonzero(blank[place : place + len(part)])] = 0
                    place += len(part)
        since[0] += many
        since[1] += optimizer.accumulated_iterations
        clip()  # type: ignore[misc]

    def see(stepping: Any) -> None:
        factor = 1 / stepping.max_grad_norm
        if stepping.loss_reduction == "mean":
            # What Opacus has divided the noisy sum by.
            divisor = stepping.expected_batch_size * stepping.accumulated_iterations
            factor *= divisor
            run.fact("divisor of a sum", divisor)
        run.fact(RECORDS, since[0])
        run.fact("batches of a step", since[1])
        run.fact("noise multiplier of each process", stepping.noise_multiplier)
        run.fact("processes", getattr(stepping, "world_size", 1))
        since[:] = 0, 0
        run.scales.append(float(1 / factor))
        run.see([each.grad * factor for each in stepping.params])
        if (replayed := run.replayed_sum) is not None:
            parts = torch.from_numpy(replayed).split([each.numel() for each in stepping.params])
            for each, part in zip(stepping.params, parts, strict=True):
                each.grad.copy_(part.view_as(each))

    if clip is not None:
        optimizer.clip_and_accumulate = clip_blank
    optimizer.attach_step_hook(see)


def _watch_inputs(parameter: Any, entered: "list[Tensor]") -> Callable[[], None]:
    """Keep what the network of this parameter is given to train on; returns how to stop.

    Hooks of all modules are not given keyword arguments. Of a network that is called with these the
    first tensor is kept that one of its modules is called with by position.
    """
    from torch import Tensor, is_grad_enabled
    from torch.nn.modules.module import register_module_forward_pre_hook

    networks: list[Any] = []
    waiting = False

    def enter(module: Any, inputs: tuple[Any, ...]) -> None:
        nonlocal waiting
        if not (module.training and is_grad_enabled()):
            return
        # The outermost module is called first.
        if not networks and any(each is parameter for each in module.parameters()):
            networks.append(module)
        waiting |= module in networks
        if waiting and inputs and isinstance(inputs[0], Tensor):
            waiting = False
            entered.append(inputs[0].detach())

    return register_module_forward_pre_hook(enter).remove


def _parts(parameter: Any) -> "list[Tensor]":
    """Per-record gradients, a tensor for each batch that was accumulated."""
    found = parameter.grad_sample
    return found if isinstance(found, list) else [found]


def _cross_entropy(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none")
