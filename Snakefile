"""dp-atlas: five papers on differential privacy, reproduced, checked and audited."""

from snakemake.utils import min_version

min_version("9.14")


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/products.smk"
include: "workflow/rules/report.smk"


for key in ATLAS.blocks:

    include: f"workflow/rules/{key}.smk"


rule all:
    default_target: True
    input:
        f"{ATLAS.folder}/report/index.html",
        f"{ATLAS.folder}/manifest.txt",
        expand(f"{ATLAS.folder}/{{product}}", product=ATLAS.products()),
