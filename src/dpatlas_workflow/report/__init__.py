"""Claims verdicts, lineage, cost plan, the page."""
