"""`python -m dpatlas_workflow.show`: see `dpatlas_workflow.show.make`."""

import sys

from dpatlas.errors import run_command
from dpatlas_workflow.show.make import main

sys.exit(run_command(main, sys.argv[1:]))
