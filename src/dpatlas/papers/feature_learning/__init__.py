"""feature_learning: private feature learning of single-index models (M1 report)."""
