"""Two processes train as one: the same weights and ledger, the noise counted once."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from small_training import (
    SAMPLERS,
    Empty,
    Jitter,
    N,
    data,
    flat,
    kept_sums,
    network,
    phase,
    training,
    weights,
)
from torch import nn

from dpatlas.accounting.clip_bounds import AdaptiveClip
from dpatlas.accounting.samplers import FullBatch, Poisson
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy.training import PrivateTraining

COUNT, PERSONS = 2, torch.arange(N) // 3
_, FIXED, SHUFFLED, FULL = SAMPLERS


class Records(torch.utils.data.Dataset):
    """The small records by index; none after `broken`."""

    broken = False

    def __len__(self):
        return N

    def __getitem__(self, index):
        if self.broken:
            raise OSError("the disk has gone")
        x, labels = data()
        return x[index], labels[index]


class FirstAlike(Records):
    """Records that are others in each process, but for the first one."""

    def __init__(self, rank):
        self.rank = rank

    def __getitem__(self, index):
        x, label = super().__getitem__(index)
        return x + self.rank * (index > 0), label


def with_a_bad_record():
    x, labels = data()
    x[3] = torch.nan
    return x, labels


def linear():
    torch.manual_seed(5)
    return nn.Linear(64, 5)


CASES = {
    "poisson": lambda **of: training([phase()], **of),
    "shuffled, in parts": lambda **of: training([phase(SHUFFLED, max_physical_batch=2)], **of),
    "closed form, all": lambda **of: training([phase(FULL)], linear(), **of),
    "all, in parts": lambda **of: training([phase(FULL, max_physical_batch=4)], **of),
    "two views": lambda **of: training([phase(FIXED)], augmentation=Jitter(), **of),
    "persons' views": lambda **of: training(
        [phase(Poisson(8, 3))], augmentation=Jitter(), groups=PERSONS, **of
    ),
    "adaptive": lambda **of: training([phase(clipping=AdaptiveClip(0.5, count_noise=1.0))], **of),
    "bad record": lambda **of: training([phase(FullBatch(N))], records=with_a_bad_record(), **of),
    "dataset": lambda **of: training([phase()], records=(Records(), None), **of),
}


def results(run: PrivateTraining) -> dict:
    run.run()
    return {
        "weights": flat(weights(run.model)).tolist(),
        "ledger": run.ledger(),
        "skipped": run.skipped_records,
    }


def refusal(run: PrivateTraining) -> str:
    with pytest.raises(InputError) as refused:
        run.run()
    return str(refused.value)


def of_both(rank: int) -> dict:
    """What a process finds, as JSON values."""
    group = dist.group.WORLD
    found = {
        name: results(make(noise=Noise(name, "keyed"), processes=group))
        for name, make in CASES.items()
    }

    noisy = training([phase(Empty(N, 6))], noise=Noise(), processes=group)
    sums = kept_sums(noisy)
    noisy.run()
    found["noise"] = torch.stack([flat(each) for each in sums]).tolist()

    whole = training([phase()], noise=Noise(), processes=group)
    for _ in range(3):
        whole.step()
    state = whole.state()
    resumed = training([phase()], noise=Noise(), processes=group)
    resumed.restore(*state)
    found["resumed"], found["whole"] = results(resumed), results(whole)

    x, labels = data()
    found["refused"] = [
        refusal(training([phase()], network(run=rank), processes=group)),
        refusal(training([phase()], noise=Noise(f"{rank}", "keyed"), processes=group)),
        refusal(training([phase()], records=(x + rank, labels), processes=group)),
        refusal(training([phase(steps=2 + rank)], processes=group)),
        refusal(training([phase(max_physical_batch=2 + rank)], processes=group)),
        refusal(training([phase()], records=(FirstAlike(rank), None), processes=group)),
    ]

    behind = training([phase()], noise=Noise(), processes=group)
    sums = kept_sums(behind)
    behind.step()
    behind.step()
    # As if its update had failed, and the step were tried again.
    behind.steps_done -= rank
    found["behind"] = [refusal(behind), len(sums), behind.ledger()["steps"]]

    records = Records()
    broken = training([phase()], records=(records, None), noise=Noise(), processes=group)
    sums = kept_sums(broken)
    broken.step()
    broken.step()
    records.broken = rank == 1
    with pytest.raises(InputError if rank else RuntimeError):
        # The sums of the other one never come.
        broken.step()
    found["broken"] = [len(sums), broken.ledger()["steps"]]
    return found


def one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    address = f"file://{folder}/meeting"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=COUNT)
    Path(folder, f"{rank}.json").write_text(json.dumps(of_both(rank)))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    multiprocessing.spawn(one_of_two, (str(folder),), nprocs=COUNT)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(COUNT)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_have_the_weights_and_the_ledger_of_one(both, name):
    one = results(CASES[name](noise=Noise(name, "keyed")))
    first, second = (found[name] for found in both)
    assert first == second
    assert first["ledger"] == json.loads(json.dumps(one["ledger"]))
    np.testing.assert_allclose(first["weights"], one["weights"], rtol=0, atol=1e-6)
    assert (one["skipped"] > 0) == (name == "bad record")
    assert first["skipped"] == one["skipped"]


def test_the_noise_of_a_secret_is_drawn_once_for_both(both):
    first, second = (torch.tensor(found["noise"]) for found in both)
    assert torch.equal(first, second)
    settings = phase()
    scale = settings.noise_multiplier * settings.max_grad_norm
    # Twice or half the variance would be away by 41 % and 29 %.
    assert float(first.std()) == pytest.approx(scale, rel=0.05)


def test_both_resume_to_the_same_bits(both):
    for found in both:
        assert found["resumed"] == found["whole"]
    assert both[0]["whole"] == both[1]["whole"]


def test_processes_that_differ_are_refused_in_both_and_the_difference_is_named(both):
    first, second = (found["refused"] for found in both)
    assert first == second
    named = [line.partition(":")[0] for line in first]
    assert named == ["weights", "noise", "plan", "plan", "max_physical_batch", "records"]


def test_a_process_that_is_a_step_behind_is_refused_before_the_noise(both):
    for found, step in zip(both, (2, 1), strict=True):
        line, sums, counted = found["behind"]
        assert line.startswith(f"step: found {step}, and others") and sums == counted == 2


def test_a_process_that_dies_leaves_no_noisy_sum_uncounted(both):
    assert [found["broken"] for found in both] == [[2, 2], [2, 2]]


def test_a_training_keeps_no_group_that_was_destroyed(tmp_path):
    """The threads of a group that is kept abort the process at its end, about once in three."""
    meeting = f"file://{tmp_path}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    private = training([phase()], processes=dist.group.WORLD)
    private.step()
    dist.destroy_process_group()
    with pytest.raises(InputError, match="processes: found a group that was destroyed"):
        private.step()


def test_what_is_no_group_is_refused():
    with pytest.raises(InputError, match="processes: found int; allowed: a process group"):
        training([phase()], processes=2)
