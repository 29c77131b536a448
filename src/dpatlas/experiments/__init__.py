"""One module per paper: spec in, record out."""
