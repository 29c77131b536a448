import numpy as np
import pytest
import small_jobs

from dpatlas.core.specs import Spec
from dpatlas.data import prepared


@pytest.fixture
def data_folder(tmp_path):
    """A small prepared set: 12 training records and 4 to add, in 6 dimensions."""
    draws = np.random.default_rng(5)
    arrays = {
        "x_train": draws.standard_normal((12, 6)).astype(np.float32),
        "y_train": draws.integers(0, 2, 12),
        "x_add": draws.standard_normal((4, 6)).astype(np.float32),
        "y_add": draws.integers(0, 2, 4),
    }
    folder = tmp_path / "data"
    prepared.save(folder, arrays, {"name": "small"})
    return folder


@pytest.fixture
def training_spec():
    def make(**changes):
        fields = {**small_jobs.KL, "steps": 12, "runs": 3}
        return Spec.of({**fields, **changes}, "small")

    return make
