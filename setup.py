"""What pyproject.toml cannot say: published verdicts go into the wheel, from docs/results."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class WithVerdicts(build_py):
    """Copies the claims.csv of every published tier into the built package."""

    def run(self) -> None:
        """The usual, and the copies; an editable install reads the checkout."""
        super().run()
        if self.editable_mode:
            return
        for claims in sorted((HERE / "docs" / "results").glob("*/claims.csv")):
            target = Path(self.build_lib) / "dpatlas" / "published" / claims.parent.name
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(claims, target / claims.name)


setup(cmdclass={"build_py": WithVerdicts})
