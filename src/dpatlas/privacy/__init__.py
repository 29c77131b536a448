"""Private training, its accounting, and the KL kernel."""
