import pytest
from checkouts import SMOKE, Checkout, copy_project


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Checkout:
    """A copy in which nothing has run yet."""
    return copy_project(tmp_path_factory.mktemp("fresh") / "dp-atlas")


@pytest.fixture
def fresh(tmp_path) -> Checkout:
    """A copy of one's own."""
    return copy_project(tmp_path / "dp-atlas")


@pytest.fixture(scope="session")
def smoke(tmp_path_factory) -> Checkout:
    """A copy in which the smoke tier has run to the page, without a network where that can be."""
    checkout = copy_project(tmp_path_factory.mktemp("smoke") / "dp-atlas", offline=True)
    result = checkout.snakemake("--configfile", SMOKE)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return checkout
