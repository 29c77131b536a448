"""dp_sgld: Langevin SGD against DP-SGD (Ryffel et al. 2022)."""
