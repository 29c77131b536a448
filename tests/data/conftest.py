import pytest
from local_server import Server
from miniatures import Cifar10, Xrays


@pytest.fixture
def miniature(monkeypatch) -> Cifar10:
    return Cifar10(monkeypatch)


@pytest.fixture
def xrays(monkeypatch) -> Xrays:
    return Xrays(monkeypatch)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()
