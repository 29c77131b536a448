"""lp_fft: accuracy of LoRA by privacy level."""

from dpatlas_workflow.papers.lp_fft.figures.strategy_table import strategy_table
from dpatlas_workflow.papers.lp_fft.published import TABLE_2
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Settings


def lpfft_lora(records: Records, settings: Settings) -> ShownTable:
    """Table 2: LP, LP-LoRA and LoRA."""
    return strategy_table(records, TABLE_2, "lora")
