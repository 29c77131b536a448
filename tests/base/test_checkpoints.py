"""Checkpoints: only their own run reads them, whole, and only their owner may."""

import io
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest

from dpatlas.base.checkpoints import Checkpoints

IDENTITY = {"spec": "s1", "code": "c1", "data": "d1", "device": "cpu"}
ARRAYS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "kl": np.array([np.nan, 1.0])}
FACTS = {"run": 2, "step": 40, "wall_s": 1.5}


@pytest.fixture
def checkpoints(tmp_path):
    folder = Checkpoints(tmp_path / "run-1", IDENTITY)
    folder.save("state", ARRAYS, FACTS)
    return folder


def _file(checkpoints):
    (path,) = checkpoints.folder.iterdir()
    return path


def as_saved(stored):
    arrays, facts = stored
    assert facts == FACTS and set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_arrays_and_facts_come_back_as_they_were_until_a_later_checkpoint_replaces_them(
    checkpoints,
):
    as_saved(Checkpoints(checkpoints.folder, dict(reversed(IDENTITY.items()))).load("state"))
    checkpoints.save("state", {"weight": np.zeros(2)}, {"step": 60})
    arrays, facts = checkpoints.load("state")
    assert facts == {"step": 60} and set(arrays) == {"weight"}
    assert len(list(checkpoints.folder.iterdir())) == 1


@pytest.mark.parametrize("field", IDENTITY)
def test_a_strangers_checkpoint_is_ignored(checkpoints, field):
    stranger = Checkpoints(checkpoints.folder, {**IDENTITY, field: "another"})
    assert stranger.load("state") is None
    assert checkpoints.load("state") is not None


def test_damage_anywhere_never_raises_and_never_changes_a_number(checkpoints):
    path = _file(checkpoints)
    whole = path.read_bytes()
    for size in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:size])
        assert checkpoints.load("state") is None, size
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x5A]) + whole[place + 1 :])
        if (stored := checkpoints.load("state")) is not None:
            as_saved(stored)


def test_a_damaged_header_of_an_array_larger_than_a_block_is_ignored(checkpoints):
    """numpy reads it before zipfile compares the checksum, and no further than its shape says."""
    checkpoints.save("large", {"weight": np.arange(8192.0)}, FACTS)
    path = checkpoints.folder / "large.npz"
    whole = path.read_bytes()
    start = whole.index(b"NUMPY", whole.index(b"weight.npy"))
    for bit in range(0, 8 * 128, 5):
        damaged = bytearray(whole)
        damaged[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        assert checkpoints.load("large") is None, bit


class Explosive:
    exploded = False

    def __setstate__(self, state):
        Explosive.exploded = True

    def __getstate__(self):
        return {"armed": True}


def saved(save, *given, **arrays):
    buffer = io.BytesIO()
    save(buffer, *given, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps(Explosive()),
        saved(np.savez, weight=np.array([Explosive()], dtype=object)),
        saved(np.save, np.zeros(3)),
        saved(np.savez, __header__=np.frombuffer(b"[1, 2]", dtype=np.uint8)),
    ],
    ids=["pickle", "array of objects", "lone array", "header that is no object"],
)
def test_what_is_no_checkpoint_is_ignored_and_never_unpickled(checkpoints, content):
    _file(checkpoints).write_bytes(content)
    assert checkpoints.load("state") is None
    assert not Explosive.exploded


def test_a_checkpoint_is_written_again_if_another_attempt_cleared_the_folder(
    checkpoints, monkeypatch
):
    """A job that outlived its Snakemake finishes beside the one that was started anew."""
    real, cleared = Path.replace, []

    def replace(path, target):
        if not cleared:
            cleared.append(path)
            checkpoints.clear()
        return real(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    checkpoints.save("state", ARRAYS, {"step": 41})
    assert cleared and checkpoints.load("state")[1] == {"step": 41}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_a_checkpoint_with_a_secret_is_readable_by_its_owner_only(tmp_path, monkeypatch, umask):
    modes, rename = [], Path.replace

    def watched(path, target):
        modes.append(stat.S_IMODE(path.stat().st_mode))
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", watched)
    before = os.umask(umask & ~0o700)
    try:
        folder = Checkpoints(tmp_path / "jobs" / "run-1", IDENTITY)
        for _ in range(2):
            folder.save("state", ARRAYS, {**FACTS, "secret": "00" * 16})
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600]
    assert stat.S_IMODE(_file(folder).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.folder.stat().st_mode) == 0o700
    assert folder.load("state") is not None
