"""One module per paper: records in; csv, pdf and png out."""
