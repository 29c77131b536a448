"""`python -m dpatlas.jobs`: see `dpatlas.jobs.run`."""

import dpatlas.core.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys

from dpatlas.errors import run_command
from dpatlas.jobs.run import main

sys.exit(run_command(main, sys.argv[1:]))
