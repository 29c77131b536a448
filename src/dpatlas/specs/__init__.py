"""One module per paper: config in, specs out; no torch."""
