"""One training by several processes of torch.distributed, each with a share of every batch.

All draw the same batches and the same noise, by one key. The clipped sums are added up over the
processes before the noise, and everyone adds the same noise to the same sum: it is counted once,
the parameters stay equal, and the ledger is that of one process.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from dpatlas.base.canonical import canonical_json, sha256
from dpatlas.base.seeds import KEY_BITS
from dpatlas.errors import InputError
from dpatlas.privacy.sums import ClippedSum
from dpatlas.privacy.units import Rows, row_count


class Processes:
    """The processes of a group; device: where what they exchange lies, as the parameters do.

    The group is held weakly: one that its maker has destroyed must end its threads, which abort a
    process that exits with them. Raises InputError for what is no process group of which this
    process is a member, and for one that was destroyed.
    """

    def __init__(self, group: Any, device: torch.device):
        if not isinstance(group, dist.ProcessGroup):
            allowed = "a process group, such as torch.distributed.group.WORLD after its set-up"
            raise InputError("processes", type(group).__name__, allowed)
        self._group, self.device = weakref.ref(group), device
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)

    @property
    def group(self) -> dist.ProcessGroup:
        """The group; InputError where it was destroyed."""
        group = self._group()
        if group is None:
            raise InputError("processes", "a group that was destroyed", "one that still exists")
        return group

    def share(self, size: int, rows: Rows) -> tuple[int, Rows]:
        """This process's rows among those of whole units of `size` rows, and how many precede."""
        units = row_count(rows) // size
        start, stop = (units * rank // self.count * size for rank in (self.rank, self.rank + 1))
        if isinstance(rows, slice):
            return start, slice(rows.start + start, rows.start + stop)
        return start, rows[start:stop]

    def add(self, clipped: ClippedSum, step: int) -> None:
        """Add up the sums of all processes in place, in float64; `norms` stay those of this one.

        Raises InputError, in all of them, where they are at different steps: a record that is in
        two batches would count twice.
        """
        sums = list(clipped.gradients.values())
        numbers = [*sums, torch.as_tensor(clipped.skipped, device=self.device)]
        numbers.append(torch.tensor([step, step**2], device=self.device))
        flat = torch.cat([each.double().flatten() for each in numbers])
        dist.all_reduce(flat, group=self.group)
        *totals, skipped, steps = flat.split([each.numel() for each in numbers])
        # Of numbers with this mean and this mean square, all are equal.
        if steps.tolist() != [self.count * step, self.count * step**2]:
            raise InputError("step", f"{step}, and others", "the same in all processes")
        for value, total in zip(sums, totals, strict=True):
            value.copy_(total.view_as(value))
        clipped.skipped = skipped[0].long()

    def total(self, number: float) -> float:
        """The sum of a number over all processes."""
        value = torch.tensor(number, dtype=torch.float64, device=self.device)
        dist.all_reduce(value, group=self.group)
        return float(value)

    def secret(self, own: str | None) -> str | None:
        """The first process's secret, which all of them go on with; None where it has none."""
        told = bytes([own is not None]) + bytes.fromhex(own or "00" * (KEY_BITS // 8))
        numbers = torch.tensor(list(told), dtype=torch.uint8, device=self.device)
        dist.broadcast(numbers, group=self.group, group_src=0)
        known, *secret = numbers.tolist()
        return bytes(secret).hex() if known else None

    def agree(self, facts: Mapping[str, Any]) -> None:
        """InputError in every process that names the first of these JSON values that differs."""
        digests = [int(sha256(canonical_json(fact))[:15], 16) for fact in facts.values()]
        least = torch.tensor(digests, device=self.device)
        most = least.clone()
        dist.all_reduce(least, dist.ReduceOp.MIN, group=self.group)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.group)
        for name, differs in zip(facts, (least != most).tolist(), strict=True):
            if differs:
                raise InputError(name, "another one in each process", "the same in all processes")
