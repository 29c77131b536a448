"""Names that users rely on: of papers, figures and tables."""

from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.registry import all_papers

FIGURES = """
    kl_vs_epochs kl_vs_depth kl_vs_width kl_bounds kl_tradeoff
    sgld_privacy_loss sgld_counterexample sgld_utility sgld_long_training
    sgld_along_n
    feature_overlap feature_risk
    lpfft_feature_quality lpfft_budget_sweep lpfft_umap lpfft_privacy_utility lpfft_sensitivity
    lpfft_imbalance lpfft_theory lpfft_distortion
    maxinf_coefficients maxinf_kappa
    pretrain_samples
"""
TABLES = """
    kl_constants
    sgld_accuracy_constant sgld_accuracy_decreasing sgld_finetune sgld_constants sgld_published
    feature_risk_table
    lpfft_strategies lpfft_lora
    maxinf_certificates maxinf_grid
    audit
"""
KEYS = ("kl_privacy", "dp_sgld", "feature_learning", "lp_fft", "max_information")


def test_figures_and_tables_keep_their_names():
    products = [product for product, _ in all_products().values()]
    for kind, names in (("figure", FIGURES), ("table", TABLES)):
        assert set(names.split()) <= {each.name for each in products if each.kind == kind}


def test_papers_keep_their_keys():
    assert set(KEYS) <= set(all_papers())
