import pytest
import torch
from small_classifier import save_data


@pytest.fixture
def data(tmp_path):
    """The manifest of a small data set for a classifier."""
    return save_data(tmp_path / "data")


@pytest.fixture
def one_thread_without_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield
