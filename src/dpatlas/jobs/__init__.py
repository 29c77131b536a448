"""A job: a spec in, a record out, checkpoints in between, so that a killed one goes on."""
