"""For the processes of the run on miniatures alone: what they expect, and no network but this host.

Python imports this module at its start where PYTHONPATH has this folder. MINIATURES names a JSON
file: `data`, by data set, what replaces the published fields of its entry in the registry; and
`weights`, by published address, that of the miniature.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

EXPECTED = json.loads(Path(os.environ["MINIATURES"]).read_text(encoding="utf-8"))


def expect_data(registry):
    """Entries with the counts, checksums and addresses of the miniatures."""
    from dpatlas.data.definitions import RemoteFile

    for name, change in EXPECTED["data"].items():
        files = tuple(RemoteFile(**file) for file in change["files"])
        entry = replace(registry.DATA_SETS[name], **{**change, "files": files})
        registry.DATA_SETS[name] = entry


def expect_weights(networks):
    """The miniature's address in the place of the published one."""
    for name, weights in networks.PUBLISHED.items():
        if address := EXPECTED["weights"].get(weights.address):
            networks.PUBLISHED[name] = replace(weights, address=address)


CHANGES = {"dpatlas.data.registry": expect_data, "dpatlas.base.networks": expect_weights}


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds the modules of CHANGES where they are, and changes them once they have run."""

    def find_spec(self, name, path, target=None):
        if name not in CHANGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            CHANGES[name](module)

        spec.loader.exec_module = exec_module
        return spec


def refuse_the_network(event, arguments):
    """Audit hook: connections to other hosts fail."""
    if event == "socket.connect":
        _, address = arguments
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise RuntimeError(f"the run on miniatures asks for {address}")


sys.meta_path.insert(0, AfterImport())
sys.addaudithook(refuse_the_network)
