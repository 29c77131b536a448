"""Claims and their verdicts, errata, printed comparisons."""
