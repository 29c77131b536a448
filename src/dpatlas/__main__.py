"""Run `python -m dpatlas`."""

import sys

from dpatlas.cli import main

sys.exit(main())
