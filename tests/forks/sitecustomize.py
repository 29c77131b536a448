"""Hands dry runs and the project's commands over to the server that DPATLAS_FORKS names.

Python imports this module at its start where PYTHONPATH has this folder. What may be interrupted,
a run of Snakemake and the commands of `python -m dpatlas`, stays a process of its own.
"""

import os
import runpy
import sys
from pathlib import Path

_, option, module, *words = [*sys.orig_argv, "", ""][: max(3, len(sys.orig_argv))]
dry = module == "snakemake" and {"-n", "--lint"} & {*words}
ours = module.startswith(("dpatlas.", "dpatlas_workflow.")) and module != "dpatlas.base.fork"
if os.environ.get("DPATLAS_FORKS") and option == "-m" and (dry or ours):
    from dpatlas.base.fork import main

    os._exit(main(module, words))

# Python itself imports the first module of this name alone.
for place in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    other = Path(place, "sitecustomize.py").absolute()
    if place and other != Path(__file__) and other.is_file():
        runpy.run_path(str(other))
