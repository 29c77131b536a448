import pytest
from prepared_trainings import save_data

from dpatlas.accounting.selection import PoissonTrials, TruncatedNegativeBinomial


@pytest.fixture
def data(tmp_path):
    """The manifest of a small prepared data set."""
    return save_data(tmp_path / "data")


@pytest.fixture
def draws(monkeypatch):
    """A function that fixes the number of trials of a selection."""

    def fix(trials):
        for law in (TruncatedNegativeBinomial, PoissonTrials):
            monkeypatch.setattr(law, "draw", lambda law, noise: trials)

    return fix
