"""Training loops of other packages that take the engine's private steps.

A module for each package, which is imported there alone: `dpatlas.loops.huggingface` needs
transformers, `dpatlas.loops.lightning` needs lightning.
"""
