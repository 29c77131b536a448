"""Spec ids, products, bounds and refusals move on purpose alone: `tools/frozen.py`."""

import frozen

from dpatlas.cli import listed


def test_nothing_moved_that_a_change_of_structure_must_not_move():
    """On purpose: `python tools/frozen.py digests`, and the commit names what moved.

    `python tools/frozen.py write DIR` at both commits and `diff -r` show the lines that differ.
    """
    known = (frozen.ROOT / frozen.DIGESTS).read_text().splitlines()
    moved = set(frozen.digests().splitlines()) ^ set(known)
    assert sorted({line.split()[1] for line in moved}) == []


def test_every_command_has_a_refusal():
    assert list(frozen.REFUSED) == list(listed())
    for _, said in frozen.refusals():
        words, line, code = said.splitlines()
        assert line.startswith("dpatlas: ") and code == "exit code 2", words
