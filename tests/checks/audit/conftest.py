import pytest
import torch

import dpatlas.privacy.logistic
import dpatlas.privacy.per_record


@pytest.fixture
def one_thread_without_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture
def no_clip(monkeypatch):
    for module in (dpatlas.privacy.logistic, dpatlas.privacy.per_record):
        monkeypatch.setattr(module, "clip_factors", lambda norms2, bound: torch.ones_like(norms2))
