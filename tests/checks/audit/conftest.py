import numpy as np
import pytest
import torch

import dpatlas.privacy.logistic
import dpatlas.privacy.per_record
from dpatlas.base.seeds import Noise
from dpatlas.privacy import noise
from dpatlas.privacy.langevin import BoundedRecords, LangevinRun
from dpatlas_workflow.checks.audit.jobs import langevin
from dpatlas_workflow.checks.audit.jobs.feature_releases import FEATURES
from dpatlas_workflow.checks.audit.jobs.langevin import LANGEVIN
from dpatlas_workflow.papers.feature_learning.jobs import layers


@pytest.fixture
def one_thread_without_gradients():
    torch.set_num_threads(1)
    with torch.no_grad():
        yield


@pytest.fixture
def scale_noise(monkeypatch):
    """A function that makes the noise of mechanism `name` `factor` times what it states."""

    def scale(name, factor):
        if name in FEATURES:
            owner, function = Noise, "normal"
        elif name in LANGEVIN:
            owner, function = LangevinRun, "_normals"
        else:
            honest = noise.add_noise

            def scaled(tensors, scale, *arguments, **keys):
                honest(tensors, factor * scale, *arguments, **keys)

            monkeypatch.setattr(noise, "add_noise", scaled)
            return
        drawn = getattr(owner, function)
        monkeypatch.setattr(owner, function, lambda *given, **axes: factor * drawn(*given, **axes))

    return scale


@pytest.fixture
def forget_clip(monkeypatch):
    """A function that takes the clip, or the bound on the records, from mechanism `name`."""

    def forget(name):
        if name in FEATURES:
            monkeypatch.setattr(layers, "clip_factors", lambda norms, bound: np.ones_like(norms))
        elif name in LANGEVIN:
            monkeypatch.setattr(langevin, "bound_records", lambda x, norm: BoundedRecords(x, 0))
        else:
            for module in (dpatlas.privacy.logistic, dpatlas.privacy.per_record):
                monkeypatch.setattr(
                    module, "clip_factors", lambda norms2, bound: torch.ones_like(norms2)
                )

    return forget
