"""Specs and records of pretrain's jobs, as its figure reads them."""
