"""feature_learning: private feature learning of single-index models (Nguyen 2025)."""
