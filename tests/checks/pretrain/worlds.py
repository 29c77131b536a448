"""Records from which the figure of pretrain can be made."""

from pretrain_sample_records import sample_records

SHOWN = {"pretrain_samples": lambda: (sample_records(), {})}
