"""What pyproject.toml cannot say: config.yaml and the published verdicts go into the wheel."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent


class WithCheckout(build_py):
    """Copies config.yaml and the claims.csv of every published tier into the built package."""

    def run(self) -> None:
        """The usual, and the copies; an editable install reads the checkout."""
        super().run()
        if self.editable_mode:
            return
        packaged = Path(self.build_lib) / "dpatlas" / "packaged"
        packaged.mkdir(exist_ok=True)
        shutil.copyfile(HERE / "config.yaml", packaged / "config.yaml")
        for claims in sorted((HERE / "docs" / "results").glob("*/claims.csv")):
            (packaged / claims.parent.name).mkdir(exist_ok=True)
            shutil.copyfile(claims, packaged / claims.parent.name / claims.name)


setup(cmdclass={"build_py": WithCheckout})
