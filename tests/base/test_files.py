"""Files are whole or absent, whatever stops the writer."""

import errno
import os
from pathlib import Path

import pytest

from dpatlas.base.files import (
    PART,
    only_process,
    read_json,
    read_rows,
    remove_parts,
    write_atomic,
    write_json,
)
from dpatlas.errors import InputError


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("call", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call, error):
    target = tmp_path / "record.json"
    target.write_text("old")

    def fail(*arguments, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        with pytest.raises(type(error)):
            write_atomic(target, "new")
    assert target.read_text() == "old"
    assert _names(tmp_path) == ["record.json"]


class Killed(BaseException):
    """Stands for kill -9."""


def test_what_a_killed_writer_leaves_is_no_result_and_goes_at_the_next_start(tmp_path, monkeypatch):
    def killed(*arguments, **named):
        raise Killed

    write_atomic(tmp_path / "a.csv", "old")
    # What only resembles a part stays.
    others = [".a.csv.note", "a.csv.part", ".part", "a.part", ".hidden"]
    for name in others:
        (tmp_path / name).write_text("x")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(Path, "unlink", lambda *given, **named: None)
        for name in ("a.csv", "b.csv"):
            with pytest.raises(Killed):
                write_atomic(tmp_path / name, "new")
    left = set(_names(tmp_path)) - {"a.csv", *others}
    assert len(left) == 2 and all(name.endswith(PART) for name in left)
    remove_parts(tmp_path, "a.csv")
    (last,) = set(_names(tmp_path)) - {"a.csv", *others}
    assert last.startswith(".b.csv")
    remove_parts(tmp_path)
    remove_parts(tmp_path / "no" / "folder")
    assert _names(tmp_path) == sorted(["a.csv", *others])
    assert (tmp_path / "a.csv").read_text() == "old"


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomic(tmp_path / "text.txt", "x")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "text.txt").stat().st_mode & 0o777 == 0o666 & ~mask


def test_json_is_the_same_bytes_for_the_same_value_and_has_no_nan(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1.5, "a": [1, None, "ü"]})
    write_json(tmp_path / "b.json", {"a": [1, None, "ü"], "b": 1.5})
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_json(tmp_path / "a.json") == {"a": [1, None, "ü"], "b": 1.5}
    for value in (float("nan"), [float("-inf")]):
        with pytest.raises(ValueError, match="JSON compliant"):
            write_json(tmp_path / "c.json", value)
    assert _names(tmp_path) == ["a.json", "b.json"]


@pytest.mark.parametrize(
    ("read", "content", "words"),
    [
        (read_json, None, ""),
        (read_json, b'{"a": 1', ""),
        (read_json, b"\xff\xfe\x00", ""),
        (read_rows, b"a,b\n\xff,1\n", "allowed: a csv file"),
        (read_rows, b"a,b\n1\n", "allowed: a whole csv file"),
        (read_rows, b"a,b\n1,2,3\n", "allowed: a whole csv file"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(tmp_path, read, content, words):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(path)
    assert all(word in str(caught.value) for word in (str(path), words))
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="directory"):
        read_json(tmp_path)


def test_one_process_holds_a_lock_and_the_next_may_take_it(tmp_path):
    for _ in range(2):
        refused = pytest.raises(InputError, match="out: found another process that trains one")
        one, two, again = (only_process(tmp_path / "out", name) for name in ("one", "two", "one"))
        with one, two, refused, again:
            raise AssertionError
