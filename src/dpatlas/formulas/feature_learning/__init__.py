"""Formulas, printed and corrected."""
