import errno

import pytest

from dpatlas.errors import InputError, RunError, run_command


def raising(error):
    def main(arguments):
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InputError("key", 3, "4"), 2, "key: found 3; allowed: 4"),
        (RunError("a\n  b"), 1, "a b"),
        (OSError(errno.ENOSPC, "No space left", "a/b.csv"), 1, "a/b.csv: No space left"),
        (OSError(errno.EXDEV, "Other disk", "a", None, "b"), 1, "a to b: Other disk"),
        (OSError(errno.ENOSPC, "No space left"), 1, "[Errno 28] No space left"),
        (MemoryError("Unable to\nallocate 9 TiB"), 1, "out of memory: Unable to allocate 9 TiB"),
    ],
)
def test_a_failure_is_one_line_and_its_exit_code(error, code, line, capsys):
    assert run_command(raising(error), []) == code
    assert capsys.readouterr().err == f"dpatlas: {line}\n"


def test_a_mistake_of_ours_is_not_hidden():
    with pytest.raises(KeyError):
        run_command(raising(KeyError("x")), [])
