"""Checks of our own code and public backbones, built as a paper is."""
