"""Specs, seeds, records, digests, checkpoints: what every layer stands on."""
