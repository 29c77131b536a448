import os

import pytest
from small_run import CODE_NOW

from dpatlas_workflow.report import state


@pytest.fixture
def code_as_made(monkeypatch):
    """The code on disk is what made the small run."""
    monkeypatch.setattr(state, "digest_now", lambda module: CODE_NOW)


@pytest.fixture(autouse=True, scope="module")
def nobody_waits_for_the_disk():
    """Making a small run would take ten times as long; no test here is of fsync."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
