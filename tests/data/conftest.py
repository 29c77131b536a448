import pneumonia_miniature
import pytest
from cifar10_miniature import Miniature
from local_server import Server


@pytest.fixture
def miniature(monkeypatch) -> Miniature:
    return Miniature(monkeypatch)


@pytest.fixture
def xrays(monkeypatch) -> pneumonia_miniature.Miniature:
    return pneumonia_miniature.Miniature(monkeypatch)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()


@pytest.fixture
def two() -> dict:
    return {"classes": ["airplane", "automobile"]}
