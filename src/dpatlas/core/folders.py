"""Where results are made and published, relative to a checkout; and what of them a wheel has."""

from pathlib import Path

RESULTS = Path("results")
DOCS = Path("docs/results")
# Of every published tier its claims.csv; `setup.py` puts them there.
PACKAGED = Path(__file__).parents[1] / "published"
