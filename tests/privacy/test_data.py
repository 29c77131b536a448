"""Records from tensors, arrays, mapped files, datasets, and inputs of several tensors."""

import os
import threading
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from places import put
from reference_gradients import by_loop, clipped_sum
from small_networks import Net
from small_training import OUTPUTS, N, data, flat, network, phase, sums_of, weights
from torch import nn
from torch.utils.data import Dataset, IterableDataset

from dpatlas.accounting.samplers import FullBatch, Poisson, Shuffled
from dpatlas.base.seeds import Noise
from dpatlas.errors import InputError
from dpatlas.privacy import digest
from dpatlas.privacy.augmentation import ShiftAndFlip
from dpatlas.privacy.training import PrivateTraining

pytestmark = pytest.mark.usefixtures("device")

PHASES = (phase(Poisson(N, 6), steps=3, max_physical_batch=4), phase(FullBatch(N), steps=2))


class Items(Dataset):
    """Pairs (input, target); notes which were asked for."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets
        self.asked = []

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        assert isinstance(index, int)
        self.asked.append(index)
        return self.inputs[index], self.targets[index]


def on_host():
    return [part.cpu() for part in data()]


def mapped(folder, name="x.npy"):
    path = folder / name
    if not path.exists():
        np.save(path, on_host()[0].numpy())
    return np.load(path, mmap_mode="r"), on_host()[1].numpy()


SOURCES = {
    "tensors on the host": lambda folder: on_host(),
    "arrays": lambda folder: [part.numpy() for part in on_host()],
    "a mapped file": mapped,
    "a dataset": lambda folder: (Items(*on_host()), None),
    "a dataset of arrays": lambda folder: (Items(*(part.numpy() for part in on_host())), None),
}


def training(records, model=None, phases=PHASES, noise=None, **options) -> PrivateTraining:
    model = network("small-cnn-t") if model is None else model
    return PrivateTraining(model, phases, *records, noise=noise or Noise(), **options)


def keyed(records, model=None, phases=PHASES, **options):
    """The weights after a training with noise that is always the same."""
    model = network("mlp") if model is None else model
    training(records, model, phases, Noise("digest", "keyed"), **options).run()
    return flat(weights(model))


PERSONS = {"groups": np.arange(N) // 3, "augmentation": ShiftAndFlip((1, 8, 8), 2, 1, True)}
TRAININGS = {
    "closed form": ("linear", PHASES, {}),
    "per record": ("mlp", PHASES, {}),
    "views of persons": ("mlp", (phase(Shuffled(8, 3), steps=4),), PERSONS),
}


@pytest.mark.parametrize("kind", TRAININGS)
def test_wherever_the_records_are_the_bits_are_the_same(kind, tmp_path):
    name, phases, options = TRAININGS[kind]
    expected = keyed(data(), network(name), phases, shared_noise="sources", **options)
    for source in SOURCES.values():
        records = source(tmp_path)
        found = keyed(records, network(name), phases, shared_noise="sources", **options)
        assert torch.equal(found, expected)


class Every:
    """Ten million equal values, none of which is kept."""

    def __init__(self, value):
        self.value = value

    def __len__(self):
        return 10_000_000

    def __getitem__(self, index):
        return self.value


def test_of_a_dataset_that_fits_no_memory_only_drawn_items_are_fetched():
    dataset, sampler = Items(Every(torch.ones(64)), Every(1)), Poisson(10_000_000, 20)
    run = training((dataset, None), network("mlp"), [phase(sampler, steps=4)])
    run.run()
    drawn = [sampler.batch_indices(run.noise, 0, step).tolist() for step in range(4)]
    assert set(dataset.asked) == {0, *(index for batch in drawn for index in batch)}
    assert run.ledger()["sampler"]["n"] == 10_000_000


class Late(Items):
    """Items of which the earlier ones take longer."""

    def __getitem__(self, index):
        time.sleep(1e-3 * (N - index) / N)
        self.threads.add(threading.get_ident())
        return super().__getitem__(index)


def test_workers_fetch_in_any_order_and_change_no_bit():
    found = []
    for count in (0, 1, 3):
        dataset = Late(*on_host())
        dataset.threads, dataset.fingerprint = set(), "late"
        found.append(keyed((dataset, None), shared_noise="w", workers=count))
        assert len(dataset.threads) == max(1, count)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_no_more_items_than_the_physical_batch_are_held_at_a_time():
    run = training((Items(*on_host()), None), phases=[phase(FullBatch(N), max_physical_batch=5)])
    sizes, fetch = [], run.data._fetch
    run.data._fetch = lambda indices: sizes.append(len(indices)) or fetch(indices)
    run.step()
    assert sizes == [5, 5, 5, 5, 3]


def of_both(self, image, code):
    codes = F.one_hot(code % 4, 4).to(image.dtype)
    return self.head(torch.tanh(self.image(image) + self.code(codes)))


def two_inputs(act=of_both):
    """A network of an image and a whole number, in two branches."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        parts = {"image": nn.Linear(64, 8), "code": nn.Linear(4, 8), "head": nn.Linear(8, OUTPUTS)}
        return put(Net(act, **parts))


def several(kind):
    x, labels = data()
    code = torch.arange(N, device=x.device)
    if kind == "dict":
        return {"image": x, "code": code}, labels
    if kind == "tuple":
        return (x, code), labels
    inputs = [{"image": x[i].cpu().numpy(), "code": i} for i in range(N)]
    return Items(inputs, labels.cpu()), None


@pytest.mark.parametrize("kind", ["dict", "tuple", "dataset of dicts"])
def test_inputs_may_be_several_tensors(kind):
    """The engine's sum of clipped gradients is that of one record after the other."""
    x, labels = data()
    model = two_inputs()
    rows = zip(x[:, None], torch.arange(N, device=x.device)[:, None], labels[:, None], strict=True)
    losses = (F.cross_entropy(model(image, code), label) for image, code, label in rows)
    expected = clipped_sum(by_loop(model, losses), 0.2)
    without_noise = phase(FullBatch(N), noise_multiplier=0.0, max_grad_norm=0.2, steps=1)
    (found,) = sums_of(training(several(kind), model, [without_noise]))
    assert list(found) == [name for name, _ in model.named_parameters()]
    torch.testing.assert_close(flat(found), flat(expected), rtol=1e-4, atol=1e-5)


def test_a_network_of_several_inputs_that_mixes_records_is_refused():
    centred = two_inputs(lambda self, image, code: of_both(self, image - image.mean(0), code))
    with pytest.raises(InputError, match=r"layer image .*: found a batch whose records meet"):
        training(several("dict"), centred)


def test_an_augmentation_of_several_tensors_is_refused():
    view = ShiftAndFlip((1, 8, 8), 2, 1, False)
    with pytest.raises(InputError, match="augmentation: found ShiftAndFlip of several tensors"):
        training(several("dict"), two_inputs(), augmentation=view)


def squares(output, targets):
    return (output - targets).square().flatten(1).sum(1)


def against_the_mean(output, targets):
    assert targets is None
    return (output - 0.5).square().sum(1)


TARGETS = {
    "real numbers": (lambda x: x[:, :OUTPUTS], squares),
    "several classes at once": (
        lambda x: (x[:, :OUTPUTS] > 0).to(x.dtype),
        lambda output, targets: F.binary_cross_entropy_with_logits(
            output, targets, reduction="none"
        ).sum(1),
    ),
    "matrices": (
        lambda x: x[:, : 2 * OUTPUTS].unflatten(1, (2, OUTPUTS)),
        lambda output, targets: squares(output[:, None], targets),
    ),
    "none": (lambda x: None, against_the_mean),
}


@pytest.mark.parametrize(("make", "loss"), TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("kind", ["tensors", "arrays", "dataset"])
def test_targets_may_be_of_any_shape_or_none(make, loss, kind):
    x, _ = data()
    targets = make(x)
    records = (x, targets)
    if kind == "arrays":
        records = x.cpu().numpy(), None if targets is None else targets.cpu().numpy()
    elif kind == "dataset":
        listed = [None] * N if targets is None else targets.cpu()
        records = Items(x.cpu(), listed), None
    settings = {"noise_multiplier": 0.0, "steps": 30, "lr": 0.5, "max_grad_norm": 1.0}

    def mean_loss(model):
        with torch.no_grad():
            return float(loss(model(x), targets).mean())

    before = mean_loss(network("mlp"))
    run = training(records, network("mlp"), [phase(FullBatch(N), **settings)], loss=loss)
    run.run()
    assert mean_loss(run.model) < 0.8 * before


def test_a_mapped_file_is_known_by_its_path_and_time_and_none_of_it_is_read(tmp_path, monkeypatch):
    read = []
    honest = digest._hash
    monkeypatch.setattr(digest, "_hash", lambda part: read.append(part) or honest(part))
    x, labels = mapped(tmp_path)
    keyed((x, labels))
    arrays = [part for part in read if isinstance(part, np.ndarray)]
    assert any(np.array_equal(part, labels) for part in arrays)
    assert not any(part.shape == x.shape for part in arrays)
    # The same file again is the same training; another file, or another part of it, is not.
    keyed(mapped(tmp_path))
    with pytest.raises(InputError, match="noise that another training has drawn"):
        keyed(mapped(tmp_path, "copy.npy"))
    x, labels = mapped(tmp_path)
    with pytest.raises(InputError, match="noise that another training has drawn"):
        keyed((np.concatenate([x[1:], x[:1]]), labels))
    found = [digest.digest(part) for part in (x, x[1:], x[:-1])]
    os.utime(tmp_path / "x.npy", (0, 0))
    found.append(digest.digest(x))
    assert len(set(found)) == 4


class Random(Items):
    def __getitem__(self, index):
        return self.inputs[index] + torch.randn(64), self.targets[index]


class Triples(Items):
    def __getitem__(self, index):
        return self.inputs[index], self.targets[index], index


class Stream(IterableDataset):
    """No map-style dataset, even with a length."""

    def __len__(self):
        return N

    def __iter__(self):
        return iter(zip(*on_host(), strict=True))


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (lambda x, y: (Random(x, y), None), "dataset: found two results for item 0"),
        (lambda x, y: (Triples(x, y), None), "found an item of type tuple; allowed: pairs"),
        (lambda x, y: (Stream(), None), "x: found Stream; allowed: .* a map-style dataset"),
        (lambda x, y: (Items(x, y), y), "labels: found targets beside a dataset"),
        (lambda x, y: (x.tolist(), y), "x: found list; allowed: a tensor, an array"),
        (lambda x, y: (list(x), y), "x: found list"),
        (lambda x, y: ((x, y[:5]), y), "x 1: found 5 records; allowed: 23"),
        (lambda x, y: ({}, y), "x: found an empty dict"),
        (lambda x, y: ({"image": "x"}, y), "x image: found str"),
        (lambda x, y: (x, None), "labels: found none; allowed: torch.int64 for the cross-entropy"),
        (lambda x, y: (Items(x, [None] * N), None), "labels: found none"),
        (lambda x, y: (x, y.int()), "labels: found torch.int32"),
        (lambda x, y: (x.numpy().astype(object), y), "data: found object; allowed: numbers"),
        (lambda x, y: (x.numpy(), y.numpy() + 4), "labels: found 8; allowed: whole numbers from 0"),
        (lambda x, y: (Items(x[:0], y[:0]), None), "data: found 0 records"),
    ],
)
def test_data_that_do_not_fit_are_refused(records, message):
    with pytest.raises(InputError, match=message):
        training(records(*on_host()))


WITHOUT_NUMBERS = {
    "sparse": (lambda x: x.to_sparse(), r"a sparse tensor \(torch.sparse_coo\)"),
    "csr": (lambda x: x.to_sparse_csr(), r"a sparse tensor \(torch.sparse_csr\)"),
    "meta": (lambda x: x.to("meta"), "a tensor on meta, without values"),
    "nested": (lambda x: torch.nested.nested_tensor(list(x)), "a nested tensor"),
}


@pytest.mark.parametrize("kind", WITHOUT_NUMBERS)
@pytest.mark.filterwarnings("ignore:.*(CSR|nested)")
def test_tensors_without_dense_numbers_are_refused(kind):
    change, found = WITHOUT_NUMBERS[kind]
    x, labels = on_host()
    for records in ((change(x), labels), ({"image": change(x)}, labels)):
        with pytest.raises(InputError, match=f"x.*: found {found}; allowed: a dense tensor"):
            training(records)
    if kind != "csr":
        with pytest.raises(InputError, match=f"labels: found {found}"):
            training((x, change(labels)))


def test_a_dataset_may_keep_sparse_numbers_and_give_dense_ones():
    class Dense(Items):
        def __getitem__(self, index):
            return self.inputs[index].to_dense(), self.targets[index]

    x, labels = on_host()
    datasets = Dense(x.to_sparse(), labels), Items(x, labels)
    assert torch.equal(*(keyed((each, None), shared_noise="sparse") for each in datasets))
    with pytest.raises(InputError, match="data: found a sparse tensor"):
        training((Items(x.to_sparse(), labels), None))


class Unlike(Items):
    """One item is unlike the others."""

    def __init__(self, place, change):
        super().__init__(*on_host())
        self.place, self.change = place, change

    def __getitem__(self, index):
        item = super().__getitem__(index)
        return self.change(*item) if index == self.place else item


def failing(x, y):
    return {}["no such key"]


UNLIKE = {
    "shape": (lambda x, y: (x[:9], y), r"items of shapes .*; allowed: items of one shape"),
    "shape of a target": (lambda x, y: (x, y[None]), "items of shapes .*; allowed: items of one"),
    "parts": (lambda x, y: ({"x": x}, y), "inputs of one tensor and parts x; allowed"),
    "target": (lambda x, y: (x, None), "items with a target and items without; allowed"),
    "fails": (failing, "item .* fails: KeyError: 'no such key'; allowed"),
}


@pytest.mark.parametrize("kind", UNLIKE)
@pytest.mark.parametrize("place", [0, N - 1])
@pytest.mark.parametrize(("at_a_time", "workers"), [(None, 0), (1, 0), (None, 2)])
def test_an_item_unlike_the_others_is_refused(kind, place, at_a_time, workers):
    change, found = UNLIKE[kind]
    dataset = Unlike(place, change)
    full = [phase(FullBatch(N), steps=1, max_physical_batch=at_a_time)]
    loss = lambda outputs, labels: outputs.square().sum(1)  # noqa: E731
    with pytest.raises(InputError, match=found if place or kind == "fails" else "found") as seen:
        training((dataset, None), network("mlp"), full, loss=loss, workers=workers).run()
    assert kind != "fails" or isinstance(seen.value.__cause__, KeyError)
