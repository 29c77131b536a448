"""Figures and tables: records in; csv, pdf and png out."""
