"""Verdicts on the claims, and the page."""


rule claims:
    input:
        claims="workflow/claims.yaml",
        schema="workflow/schemas/claims.schema.yaml",
        records=ATLAS.all_records(),
    output:
        csv=report(
            f"{ATLAS.folder}/claims.csv",
            caption="../report/claims.rst",
            category="claims",
        ),
    log:
        f"{LOGS}/claims.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=ATLAS.claim_settings(),
        products=ATLAS.products(),
        code=code_digest("dpatlas.report.claims"),
    shell:
        "{PYTHON:q} -m dpatlas.report.claims --claims {input.claims:q} --tier {ATLAS.tier} "
        "--schema {input.schema:q} --settings {params.settings:q} --results {ATLAS.folder} "
        "--products {params.products:q} --output {output.csv:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule page:
    input:
        claims=f"{ATLAS.folder}/claims.csv",
        template="src/dpatlas/report/page.html.j2",
        lineage=expand(f"{LINEAGE}/{{name}}.json", name=[*ATLAS.figures, *ATLAS.tables]),
        figures=expand(f"{FIGURES}/{{name}}.svg", name=ATLAS.figures),
        tables=expand(f"{TABLES}/{{name}}.csv", name=ATLAS.tables),
        captions=expand(
            "workflow/report/{name}.rst", name=[*ATLAS.figures, *ATLAS.tables]
        ),
    output:
        f"{ATLAS.folder}/report/index.html",
    log:
        f"{LOGS}/page.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        code=code_digest("dpatlas.report.page"),
        show=[*ATLAS.figures, *ATLAS.tables],
    shell:
        "{PYTHON:q} -m dpatlas.report.page --tier {ATLAS.tier} --results {ATLAS.folder} "
        "--captions workflow/report --show {params.show} --output {output:q} > {log:q} 2>&1"
