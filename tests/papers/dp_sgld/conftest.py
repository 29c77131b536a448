import pytest


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The manifest of a small data set."""
    # Here, as tests of formulas and figures need no torch.
    from sgld_small import save_data

    return save_data(tmp_path_factory.mktemp("small") / "data")
