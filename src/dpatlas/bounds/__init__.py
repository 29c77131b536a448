"""Formulas only: numpy and scipy, one module per paper."""
