"""One module per block of the config: config in, specs out; no torch."""
