"""lp_fft: what specs and records hold, a module for each kind of job."""
