"""The jobs: a spec in, a record out."""
