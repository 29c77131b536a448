"""kl_privacy: KL privacy loss of noisy gradient descent (Ye et al. 2023)."""
