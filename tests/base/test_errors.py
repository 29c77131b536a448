import errno
import signal
import subprocess
import sys

import pytest

from dpatlas.errors import ArgumentParser, InputError, RunError, run_command


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


def test_a_reader_that_has_gone_is_no_failed_run_and_no_success():
    """A claim that is not guaranteed has exit code 1."""
    words = [sys.executable, "-m", "dpatlas", "claims", "--published"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 141


@pytest.fixture
def parser():
    parser = ArgumentParser(prog="dpatlas noise")
    group = parser.add_argument_group("numbers").add_mutually_exclusive_group()
    group.add_argument("-s", "--noise", type=float)
    group.add_argument("--steps", type=int)
    parser.add_argument("--files", nargs="+", default=[])
    parser.add_argument("--phase", action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("words", nargs="*")
    return parser


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--noise 1 --noise 5", "--noise: found 1 and 5; allowed: one value"),
        ("--noise=1e-5 -s 1e-5", "--noise: found 1e-05 and 1e-05; allowed: one value"),
        ("--steps 0 --steps 3", "--steps: found 0 and 3; allowed: one value"),
        ("--files a b --files c", "--files: found a b and c; allowed: one value"),
    ],
)
def test_a_second_value_of_an_option_is_refused(parser, words, line):
    with pytest.raises(InputError) as caught:
        parser.parse_args(words.split())
    assert str(caught.value) == line


def test_options_that_repeat_and_flags_may_be_given_twice(parser):
    words = "a b --json --phase 1 --phase 2 --json --noise 2"
    for _ in range(2):
        options = parser.parse_args(words.split())
        assert (options.phase, options.json, options.words) == (["1", "2"], True, ["a", "b"])
        assert (options.noise, options.steps, options.files) == (2.0, None, [])


def test_a_mistake_of_ours_is_not_hidden():
    with pytest.raises(KeyError):
        run_command(raising(KeyError("x")), [])


def test_sigterm_removes_what_is_half_written(tmp_path):
    """As `bundle --open` and `publish` make it, a folder at a time."""
    script = """
import sys, time
from pathlib import Path
from dpatlas.base.files import replacing_folder
from dpatlas.errors import run_command

def main(arguments):
    with replacing_folder(Path(arguments[0]) / "made") as folder:
        (folder / "half").touch()
        print("there", flush=True)
        time.sleep(60)

sys.exit(run_command(main, sys.argv[1:]))
"""
    words = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"there\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
        assert b"interrupted" in process.stderr.read()
    assert not list(tmp_path.iterdir())
