"""`python -m dpatlas.show`: see `dpatlas.show.make`."""

import sys

from dpatlas.errors import run_command
from dpatlas.show.make import main

sys.exit(run_command(main, sys.argv[1:]))
