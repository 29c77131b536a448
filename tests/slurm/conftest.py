import importlib.util
from pathlib import Path

import pytest

# Folders of tests are no packages, and two files of them are called conftest.
_spec = importlib.util.spec_from_file_location(
    "checkouts", Path(__file__).parents[1] / "workflow" / "conftest.py"
)
_checkouts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_checkouts)


@pytest.fixture(scope="session")
def new_checkout(tmp_path_factory):
    """A function that makes a copy of the project in which nothing has run yet."""
    return lambda name: _checkouts.copy_project(tmp_path_factory.mktemp(name) / "dp-atlas")
