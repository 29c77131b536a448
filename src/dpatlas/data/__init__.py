"""Data sets and synthetic sources."""
