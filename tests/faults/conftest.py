import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Small jobs, records and runs that other tests made.
sys.path += [str(TESTS / name) for name in ("experiments", "figures", "report")]
# The workflow's tests own the copy of the project; theirs is a conftest.py as well.
SPEC = importlib.util.spec_from_file_location(
    "workflow_conftest", TESTS / "workflow" / "conftest.py"
)
workflow = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(workflow)


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Makes copies of the project, each in a folder of its own name."""

    def copy(name):
        return workflow.copy_project(tmp_path_factory.mktemp("faults") / name)

    return copy
