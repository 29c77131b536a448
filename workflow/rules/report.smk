"""Verdicts on the claims, the checksums of all numbers, and the page."""


localrules:
    manifest,


rule claims:
    """The verdict on every claim of the papers."""
    input:
        claims=ATLAS.files("claims.yaml"),
        records=ATLAS.claim_records(),
    output:
        csv=report(
            f"{ATLAS.folder}/claims.csv",
            caption="../report/claims.rst",
            category="claims",
        ),
        comparisons=f"{ATLAS.folder}/comparisons.csv",
    log:
        f"{LOGS}/claims.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        settings=ATLAS.claim_settings(),
        products=ATLAS.product_files(),
        lists=LISTS,
        code=code_digest(
            "dpatlas_workflow.evidence.claims",
            *(f"{paper.package}.claims" for paper in all_papers().values()),
        ),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.evidence.claims --tier {params.tier} "
        "--settings {params.lists:q}/claims.json "
        "--records {params.lists:q}/claims.txt --products {params.lists:q}/products.txt "
        "--costs {params.lists:q}/costs.json "
        "--output {output.csv:q} > {log:q} 2>&1"


rule manifest:
    """Checksums of all csv files of the tier."""
    input:
        claims=multiext(f"{ATLAS.folder}/", "claims.csv", "comparisons.csv"),
        figures=expand(f"{FIGURES}/{{name}}.csv", name=ATLAS.figures),
        tables=expand(f"{TABLES}/{{name}}.csv", name=ATLAS.tables),
    output:
        f"{ATLAS.folder}/manifest.txt",
    log:
        f"{LOGS}/manifest.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        folder=subpath(output[0], parent=True),
        code=code_digest("dpatlas_workflow.report.manifest"),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.report.manifest --results {params.folder:q} --output {output:q} "
        "--files {input:q} > {log:q} 2>&1"


rule page:
    """The pages of the tier: an index, one by paper, and one of data, privacy and runs."""
    input:
        claims=multiext(f"{ATLAS.folder}/", "claims.csv", "comparisons.csv"),
        templates=expand(
            "src/dpatlas_workflow/report/{name}",
            name=[
                *(
                    f"{name}.html.j2"
                    for name in ("frame", "index", "macros", "paper", "runs")
                ),
                *("page.css", "page.js", "charts.js"),
            ],
        ),
        errata=ATLAS.files("errata.yaml"),
        about="workflow/report/claims.rst",
        beside=ATLAS.published(here=False),
        published=ATLAS.published(here=True),
        lineage=expand(f"{LINEAGE}/{{name}}.json", name=[*ATLAS.figures, *ATLAS.tables]),
        figures=expand(f"{FIGURES}/{{name}}.json", name=ATLAS.figures),
        numbers=expand(f"{FIGURES}/{{name}}.csv", name=ATLAS.figures),
        tables=expand(
            f"{TABLES}/{{name}}.{{kind}}", name=ATLAS.tables, kind=["csv", "md"]
        ),
    output:
        index=f"{ATLAS.folder}/report/index.html",
        others=expand(f"{ATLAS.folder}/report/{{page}}.html", page=ATLAS.pages),
    log:
        f"{LOGS}/page.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output[0], ancestor=2),
        code=code_digest("dpatlas_workflow.report.page", *ATLAS.modules("printed")),
        captions=ATLAS.captions,
        show=[*ATLAS.figures, *ATLAS.tables],
        beside=lambda _, input: [Path(file).parent for file in input.beside],
        published=lambda _, input: [
            f"--published={Path(file).parent}" for file in input.published
        ],
        partial="--partial" if ATLAS.config.partial else "",
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.report.page --tier {params.tier} --results {params.folder:q} "
        "--about {input.about:q} --show {params.show} --beside {params.beside:q} {params.published:q} {params.partial} "
        "--output {output.index:q} > {log:q} 2>&1"
