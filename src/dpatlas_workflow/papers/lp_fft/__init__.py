"""lp_fft: linear probing before full fine-tuning (DP-LP-FFT)."""
