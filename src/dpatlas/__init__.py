"""dp-atlas: five papers on differential privacy, reproduced, checked and audited."""

__version__ = "0.1.0"
