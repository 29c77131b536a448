"""lp_fft: accuracy of the strategies by privacy level."""

from dpatlas_workflow.papers.lp_fft.figures.strategy_table import strategy_table
from dpatlas_workflow.papers.lp_fft.published import TABLE_1
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Settings


def lpfft_strategies(records: Records, settings: Settings) -> ShownTable:
    """Table 1: LP, LP-FFT and FFT by scenario and privacy level, and the controls."""
    return strategy_table(records, TABLE_1, "strategies")
