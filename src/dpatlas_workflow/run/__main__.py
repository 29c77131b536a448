"""`python -m dpatlas_workflow.run`: see `dpatlas_workflow.run.command`."""

import dpatlas.base.single_thread  # noqa: F401  # isort: skip  (before numpy and torch)

import sys

from dpatlas.errors import run_command
from dpatlas_workflow.run.command import main

sys.exit(run_command(main, sys.argv[1:]))
