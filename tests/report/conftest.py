import pytest
from small_run import CODE_NOW

from dpatlas_workflow.report import state


@pytest.fixture
def code_as_made(monkeypatch):
    """The code on disk is what made the small run."""
    monkeypatch.setattr(state, "digest_now", lambda module: CODE_NOW)
