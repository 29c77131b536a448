import pytest
import torch
from small_classifier import save_data

import dpatlas.privacy.logistic
import dpatlas.privacy.per_record
from dpatlas.accounting.selection import PoissonTrials, TruncatedNegativeBinomial


@pytest.fixture
def data(tmp_path):
    """The manifest of a small data set for a classifier."""
    return save_data(tmp_path / "data")


@pytest.fixture
def one_thread_without_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture
def draws(monkeypatch):
    """A function that fixes the number of trials of a selection."""

    def fix(trials):
        for law in (TruncatedNegativeBinomial, PoissonTrials):
            monkeypatch.setattr(law, "draw", lambda law, noise: trials)

    return fix


@pytest.fixture
def no_clip(monkeypatch):
    for module in (dpatlas.privacy.logistic, dpatlas.privacy.per_record):
        monkeypatch.setattr(module, "clip_factors", lambda norms2, bound: torch.ones_like(norms2))
