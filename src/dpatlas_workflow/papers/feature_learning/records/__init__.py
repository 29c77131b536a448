"""Records of feature_learning, as its figures and claims read them."""
