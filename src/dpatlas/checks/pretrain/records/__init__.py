"""Specs and metrics of pretrain's jobs, as its figure reads them."""
