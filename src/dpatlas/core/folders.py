"""Where results are made and published, relative to a checkout; and what of them a wheel has."""

from pathlib import Path

RESULTS = Path("results")
DOCS = Path("docs/results")
# config.yaml, and of every published tier its claims.csv; `setup.py` puts them there.
PACKAGED = Path(__file__).parents[1] / "packaged"


def published_results() -> Path:
    """The folder with a folder for every published tier: of this checkout, the wheel or its own."""
    checkout = Path(__file__).parents[3]
    return next(path for path in (DOCS, PACKAGED, checkout / DOCS) if path.is_dir())
