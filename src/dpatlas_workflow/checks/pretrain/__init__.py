"""pretrain: public backbones, trained once or imported."""
