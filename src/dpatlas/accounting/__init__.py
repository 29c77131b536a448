"""What mechanisms guarantee: samplers, accountants, ledgers, and tests of claims; no torch."""
