"""lp_fft: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure("lpfft_feature_quality", needs=("feature_quality",), place="Fig. 2 left, Fig. 7"),
    figure("lpfft_budget_sweep", needs=("strategies", "clip_sweep"), place="Fig. 2 right, Fig. 6"),
    figure("lpfft_umap", needs=("umap",), place="Figs. 4, 5"),
    figure("lpfft_privacy_utility", needs=("strategies", "lora"), place="Fig. 8"),
    figure("lpfft_sensitivity", needs=("sensitivity",), place="Fig. 9"),
    figure("lpfft_imbalance", needs=("imbalance",), place="Fig. 10"),
    figure(
        "lpfft_theory", needs=("dynamics", "distortion"), place="Thms 3.3, 3.4, 4.2-4.5, Eq. 161"
    ),
    table("lpfft_strategies", needs=("strategies",), place="Table 1"),
    table("lpfft_lora", needs=("lora",), place="Table 2"),
)
