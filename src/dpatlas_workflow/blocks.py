"""What is registered of a block of the config: a paper, or a check of our own code.

Each block has a folder, and `block.py` in it is all that says so. No job imports that module, so
that registering something re-runs nothing.
"""

import ast
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Block:
    """A paper or a check. Its modules are named here and loaded where they are needed.

    key: of the config, of rules, folders and claims. prefix: of the names of its claims. package:
    its folder. position: its place in lists, the lowest first. kinds: of its jobs; each has a
    module of that name in the folder `jobs`, whose code digest covers that kind alone.
    writes_weights: kinds whose jobs write a backbone's weights beside the record; each has a rule
    of its own in the workflow.
    """

    key: str
    title: str
    prefix: str
    package: str
    position: int
    kinds: tuple[str, ...]
    writes_weights: tuple[str, ...] = ()

    def load(self, module: str) -> ModuleType:
        """The module of that name in the block's folder."""
        return importlib.import_module(f"{self.package}.{module}")

    def cost(self, kind: str) -> Any:
        """The cost of a kind's jobs as `cost.py` has it; None without."""
        if importlib.util.find_spec(f"{self.package}.cost") is None:
            return None
        return self.load("cost").KINDS.get(kind)

    @property
    def folder(self) -> Path:
        """Where its files are, such as `claims.yaml`; nothing of it is imported."""
        spec = importlib.util.find_spec(self.package)
        assert spec is not None and spec.origin is not None
        return Path(spec.origin).parent

    def job_module(self, kind: str) -> str:
        """Name of the module with the jobs of a kind."""
        return f"{self.package}.jobs.{kind}"

    def about(self, kind: str) -> str:
        """The first paragraph of what the module of a kind says of itself; imports nothing."""
        path = self.folder / "jobs" / f"{kind}.py"
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        return " ".join(text.partition("\n\n")[0].split())

    def product_module(self, name: str) -> str:
        """Name of the module with a figure or table."""
        return f"{self.package}.figures.{name}"
