"""Figures and tables of lp_fft: `python -m dpatlas.papers.lp_fft.figures.dispatch NAME`."""

import sys
from collections.abc import Sequence

from dpatlas.errors import run_command
from dpatlas.papers.lp_fft.figures.lpfft_feature_quality import lpfft_feature_quality
from dpatlas.papers.lp_fft.figures.lpfft_umap import lpfft_umap
from dpatlas.papers.lp_fft.figures.strategies import lpfft_budget_sweep, lpfft_privacy_utility
from dpatlas.papers.lp_fft.figures.strategy_tables import lpfft_lora, lpfft_strategies
from dpatlas.papers.lp_fft.figures.theory import lpfft_imbalance, lpfft_sensitivity, lpfft_theory
from dpatlas.show.output import figure_main

MODULE = "dpatlas.papers.lp_fft.figures.dispatch"
FIGURES = {
    figure.__name__: figure
    for figure in (
        lpfft_feature_quality,
        lpfft_budget_sweep,
        lpfft_umap,
        lpfft_privacy_utility,
        lpfft_sensitivity,
        lpfft_imbalance,
        lpfft_theory,
    )
}
TABLES = {table.__name__: table for table in (lpfft_strategies, lpfft_lora)}


def main(arguments: Sequence[str]) -> int:
    """Make one figure or table from the command line."""
    return figure_main(arguments, MODULE, FIGURES, TABLES)


if __name__ == "__main__":
    sys.exit(run_command(main, sys.argv[1:]))
