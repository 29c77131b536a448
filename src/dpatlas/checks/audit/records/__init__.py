"""Records of audit, as its table and the commands `train` and `audit` read them."""
