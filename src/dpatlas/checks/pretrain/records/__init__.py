"""Records of pretrain, as its figure reads them."""
