"""max_information: figures and tables, the runs behind each, and where the paper shows it."""

from dpatlas.core.products import figure, table

PRODUCTS = (
    figure("maxinf_coefficients", needs=("coefficients",), place="Fig. 1"),
    figure("maxinf_kappa", needs=("kappa", "simulation"), place="Fig. 2"),
    table("maxinf_certificates", needs=("certificates", "agreement"), place="Tables 1-3"),
    table("maxinf_grid", needs=("certificates",), place="Appendix C"),
)
