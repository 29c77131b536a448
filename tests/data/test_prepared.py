import numpy as np
import pytest

from dpatlas.data import prepared
from dpatlas.data.prepared import HELD_OUT, NAMES, content_sha256, load, save
from dpatlas.errors import InputError


@pytest.fixture
def arrays():
    random = np.random.default_rng(1)
    x = random.standard_normal((6, 4)).astype(np.float32)
    y = np.array([0, 1, 0, 1, 1, 0])
    return {"x_train": x[:4], "y_train": y[:4], "x_add": x[4:], "y_add": y[4:]}


def test_what_is_saved_is_loaded_and_in_the_digest(tmp_path, arrays):
    save(tmp_path, arrays, {})
    assert [getattr(load(tmp_path), f"x_{part}").shape for part in HELD_OUT] == [(0, 4)] * 2
    more = arrays | {"x_test": arrays["x_add"], "y_test": arrays["y_add"]}
    manifest = save(tmp_path, more, {"name": "toy"})
    found = load(tmp_path)
    for name, array in more.items():
        np.testing.assert_array_equal(getattr(found, name), array)
        assert getattr(found, name).dtype == array.dtype
    assert found.manifest == manifest and found.sha256 == content_sha256(more)
    assert found.sha256 != content_sha256(arrays)


@pytest.mark.parametrize("label", [-1, 2])
@pytest.mark.parametrize("name", ["y_train", "y_test"])
def test_label_of_no_class_is_refused(tmp_path, arrays, name, label):
    arrays |= {"x_test": arrays["x_add"], "y_test": arrays["y_add"]}
    arrays[name] = np.append(arrays[name][:-1], label)
    save(tmp_path, arrays, {"classes": ["3", "8"]})
    with pytest.raises(InputError, match=rf"{name}: .*{label}.* >= 0 and < 2"):
        load(tmp_path)


def test_digest_depends_on_content_and_not_on_layout(arrays):
    reference = content_sha256(arrays)
    fortran = {name: np.asfortranarray(array) for name, array in arrays.items()}
    swapped = {name: a.astype(a.dtype.newbyteorder(">")) for name, a in arrays.items()}
    assert content_sha256(fortran) == content_sha256(swapped) == reference
    changes = [
        {"x_train": arrays["x_train"].reshape(2, 8)},
        {"y_add": arrays["y_add"].astype(np.int32)},
        {"y_add": 1 - arrays["y_add"]},
        {"x_add": arrays["x_train"], "x_train": arrays["x_add"]},
    ]
    assert len({reference, *(content_sha256(arrays | change) for change in changes)}) == 5


def test_no_flipped_byte_goes_unnoticed(tmp_path, arrays):
    save(tmp_path, arrays, {})
    whole = (tmp_path / "arrays.npz").read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        (tmp_path / "arrays.npz").write_bytes(damaged)
        # A byte that carries no content may be lost; content may not change.
        try:
            found = load(tmp_path)
        except InputError as error:
            assert "\n" not in str(error)
        else:
            assert all(np.array_equal(getattr(found, name), arrays[name]) for name in NAMES)


def test_pickled_and_missing_arrays_are_refused(tmp_path, arrays):
    save(tmp_path, arrays, {})
    objects = arrays | {"x_add": np.array([{}], dtype=object)}
    np.savez(tmp_path / "arrays.npz", **objects)
    with pytest.raises(InputError, match="damaged"):
        load(tmp_path)
    (tmp_path / "arrays.npz").unlink()
    with pytest.raises(InputError, match=r"arrays\.npz"):
        load(tmp_path)


@pytest.mark.parametrize("text", [None, "{}", '{"schema_version": 99, "sha256": "x"}', "{"])
def test_other_manifests_are_refused(tmp_path, arrays, text):
    save(tmp_path, arrays, {})
    (tmp_path / "manifest.json").unlink()
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json"):
        load(tmp_path)


@pytest.mark.parametrize("writer", ["write_atomic", "write_json"])
def test_interrupted_save_is_never_taken_for_a_set(tmp_path, arrays, monkeypatch, writer):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepared, writer, interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, arrays, {})
    with pytest.raises(InputError):
        load(tmp_path)
