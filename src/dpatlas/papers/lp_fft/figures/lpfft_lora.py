"""lp_fft: accuracy of LoRA by privacy level."""

from dpatlas.papers.lp_fft.figures.strategy_table import strategy_table
from dpatlas.papers.lp_fft.published import TABLE_2
from dpatlas.show.output import ShownTable
from dpatlas.show.rows import Records, Settings


def lpfft_lora(records: Records, settings: Settings) -> ShownTable:
    """Table 2: LP, LP-LoRA and LoRA."""
    return strategy_table(records, TABLE_2, "lora")
