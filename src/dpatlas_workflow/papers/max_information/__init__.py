"""max_information: PAC-Bayes certificates with DP-SGD priors (Lampert and Zakerinia 2026)."""
