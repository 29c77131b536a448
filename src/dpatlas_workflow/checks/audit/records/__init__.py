"""Specs and records of audit's jobs, as its table and commands read them."""
