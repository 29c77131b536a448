"""Is this interpreter fit to hold the environment?

Prints the path of the interpreter to build on and exits 0, or prints one line that says what to
install and exits 1. Any Python must be able to read this file, Python 2 included.
"""

import platform
import sys

OLDEST, NEWEST = (3, 11), (3, 13)
PLATFORMS = {"Linux": ("x86_64", "aarch64"), "Darwin": ("arm64",)}


def complaint():
    """What is wrong with this interpreter and what to install instead; None if all is well."""
    version = ".".join(map(str, sys.version_info[:2]))
    if not OLDEST <= tuple(sys.version_info[:2]) <= NEWEST:
        return (
            "Python " + version + " at " + sys.executable + " will not do: install Python 3.11, "
            "3.12 or 3.13, or name one with make PYTHON=/path/to/python3.12"
        )
    system, machine = platform.system(), platform.machine()
    if machine not in PLATFORMS.get(system, ()):
        return (
            system + " on " + machine + " has no PyTorch builds: use Linux (x86-64, aarch64), "
            "macOS on Apple silicon with an arm64 Python, or Windows through WSL"
        )
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return (
            "Python " + version + " at " + sys.executable + " lacks venv: install it (Debian and "
            "Ubuntu: apt install python" + version + "-venv) and run make again"
        )
    return None


if __name__ == "__main__":
    problem = complaint()
    if problem:
        print(problem)
        sys.exit(1)
    # Started from inside an activated environment, that environment may be the one to replace.
    print(getattr(sys, "_base_executable", None) or sys.executable)
