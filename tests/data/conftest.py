import pytest
from cifar10_miniature import Miniature


@pytest.fixture
def miniature(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


@pytest.fixture
def two() -> dict:
    return {"classes": ["airplane", "automobile"]}
