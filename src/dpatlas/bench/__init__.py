"""Races between our kernels, plain training steps and peers: one process per candidate."""
