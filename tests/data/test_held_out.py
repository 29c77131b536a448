import numpy as np
import pytest

from dpatlas.data.prepare import prepare
from dpatlas.data.prepared import load
from dpatlas.errors import InputError

PARTS = ("train", "add", "test", "validation")
TEN = {"classes": list(range(10)), "n_train": 1000}
# Written down before held-out records were known.
TWO = {"classes": [3, 8], "n_train": 300, "norm": 8}
FEW = {"classes": [3, 8], "n_train": 100, "n_add": 57, "selection": 5}
KNOWN = {
    "364e8f37c38cafcbfe457ccbff0542915a2ac25d0195613a1e361cec91c4581e": TWO,
    "5dad3b6b39462a1d03fec817f1c5e6092049086fdbbe258e5a6bc07909eccd57": TEN,
    "b1d05ac8b5e0a0dde7375ce5f68d9449129507ce58aaa2a9c5c3bce405b75dbb": FEW,
}
HELD_OUT = {"n_test": 300, "n_validation": 200}


def digits(folder, **change):
    prepare("digits", TEN | change, folder)
    return load(folder)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """The ten digits, dealt to all four parts."""
    return digits(tmp_path_factory.mktemp("digits"), **HELD_OUT)


def x_of(data, *parts):
    return np.concatenate([getattr(data, f"x_{part}") for part in parts])


@pytest.mark.parametrize("digest", KNOWN)
def test_sets_without_held_out_records_are_what_they_were(tmp_path, digest):
    manifest = prepare("digits", KNOWN[digest], tmp_path)
    assert manifest["sha256"] == digest
    assert set(manifest["counts"]) == {"train", "add"}


def test_no_digit_is_in_two_parts_and_labels_belong_to_their_images(split):
    assert [len(x_of(split, part)) for part in PARTS] == [1000, 297, 300, 200]
    # All 1,797 digits differ.
    assert len(np.unique(x_of(split, *PARTS), axis=0)) == 1797
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    rows = [np.float32(row / 16).tobytes() for row in pixels]
    label = dict(zip(rows, labels.tolist(), strict=True))
    for part in PARTS:
        x, y = getattr(split, f"x_{part}"), getattr(split, f"y_{part}")
        assert [label[row.tobytes()] for row in x] == y.tolist()
        assert set(y) == set(range(10))


@pytest.mark.parametrize(
    ("change", "shared"),
    [
        # Held-out records do not move private ones.
        ({"n_test": 0, "n_validation": 0}, {"train": 1000, "add": 297}),
        # A larger held-out part extends the smaller.
        ({"n_test": 20}, {"test": 20}),
        ({"n_validation": 20}, {"validation": 20}),
        # Held-out parts are the same for every number of private records.
        ({"n_train": 100, "n_add": 10}, {"test": 300, "validation": 200}),
    ],
)
def test_the_size_of_a_part_moves_no_record_of_another(split, tmp_path, change, shared):
    other = digits(tmp_path, **HELD_OUT | change)
    for part, count in shared.items():
        assert min(len(x_of(split, part)), len(x_of(other, part))) == count
        np.testing.assert_array_equal(x_of(split, part)[:count], x_of(other, part)[:count])


def test_all_that_there_are_leaves_held_out_records_alone(tmp_path):
    found = digits(tmp_path, n_train=None, n_add=0, n_test=300, n_validation=97)
    assert len(found.x_train) == 1400
    assert len(np.unique(x_of(found, *PARTS), axis=0)) == 1797


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_test": 1798}, "n_test: found 1798; allowed: at most 1797, the train records"),
        ({"n_train": 1498, "n_test": 300}, "n_train: found 1498; allowed: at most 1497"),
        ({"n_test": 1700, "n_validation": 98}, "n_validation: found 98; allowed: at most 97"),
        ({"n_test": 797}, "n_add: found null, with no records left; allowed: 0, or a smaller"),
        ({"n_train": None, "n_test": 1797}, "n_train: found null, with no records left"),
    ],
)
def test_more_than_there_is_is_refused_in_one_line(tmp_path, change, message):
    with pytest.raises(InputError) as caught:
        digits(tmp_path / "out", **change)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
