"""dp-atlas: five papers on differential privacy, reproduced, checked and audited."""

from snakemake.utils import min_version

min_version("9.14")


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/jobs.smk"
include: "workflow/rules/tune.smk"
include: "workflow/rules/products.smk"
include: "workflow/rules/report.smk"


if "pretrain" in ATLAS.blocks and not ATLAS.config.partial:

    include: "workflow/rules/pretrain.smk"


if "sgld_counterexample" in ATLAS.products:

    include: "workflow/rules/first.smk"


rule all:
    """Everything: figures, tables, verdicts and the page."""
    default_target: True
    input:
        f"{ATLAS.folder}/report/index.html",
        f"{ATLAS.folder}/manifest.txt",
        expand(f"{ATLAS.folder}/{{product}}", product=ATLAS.product_files()),
        # Snakemake makes what is behind these again only where it is asked for.
        ATLAS.all_records(),
        expand(f"{LINEAGE}/{{product}}.json", product=ATLAS.products),
        rules.claims.output,


# The rules have taken the digests of all code: the jobs need not.
remember_code()
