"""Where results are made and published, relative to a checkout; and what of them a wheel has."""

from pathlib import Path

RESULTS = Path("results")
DOCS = Path("docs/results")
# config.yaml, and of every published tier its claims.csv; `setup.py` puts them there.
PACKAGED = Path(__file__).parents[1] / "packaged"
# The tier of config.yaml, the configs of the others, and the config beside the results of each.
DEFAULT_TIER, TIERS, CONFIG = "embedded", Path("workflow/tiers"), "config.json"
# Beside the results: by condition, how many runs are made where that is more than the config says.
MORE_RUNS = "more_runs.json"


def published_results() -> Path:
    """The folder with a folder for every published tier: of this checkout, the wheel or its own."""
    checkout = Path(__file__).parents[3]
    return next(path for path in (DOCS, PACKAGED, checkout / DOCS) if path.is_dir())


def command(target: str, tier: str) -> str:
    """The command that makes `target`, or all if it is empty, at `tier` in the project's folder."""
    words = ["snakemake", "--cores", "1", *([target] if target else [])]
    if (TIERS / f"{tier}.yaml").is_file():
        words += ["--configfile", str(TIERS / f"{tier}.yaml")]
    elif tier != DEFAULT_TIER:
        words += ["--configfile", f"results/{tier}/config.json"]
    return " ".join(words)
