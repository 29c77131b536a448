"""Verdicts on the claims, and the page."""


rule claims:
    input:
        claims="workflow/claims.yaml",
        records=ATLAS.all_records(),
    output:
        csv=report(
            f"{ATLAS.folder}/claims.csv",
            caption="../report/claims.rst",
            category="claims",
        ),
    params:
        settings=ATLAS.claim_settings(),
        code=code_digest("dpatlas.report.claims"),
    log:
        f"{LOGS}/claims.log",
    conda:
        "../../environment.yml"
    threads: 1
    shell:
        "{PYTHON:q} -m dpatlas.report.claims --claims {input.claims:q} --tier {ATLAS.tier} "
        "--settings {params.settings:q} --results {ATLAS.folder} --output {output.csv:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule page:
    input:
        claims=f"{ATLAS.folder}/claims.csv",
        figures=expand(f"{FIGURES}/{{name}}.svg", name=ATLAS.figures),
        tables=expand(f"{TABLES}/{{name}}.csv", name=ATLAS.tables),
        captions=expand("workflow/report/{name}.rst", name=[*ATLAS.figures, *ATLAS.tables]),
    output:
        f"{ATLAS.folder}/report/index.html",
    params:
        code=code_digest("dpatlas.report.page"),
    log:
        f"{LOGS}/page.log",
    conda:
        "../../environment.yml"
    threads: 1
    shell:
        "{PYTHON:q} -m dpatlas.report.page --tier {ATLAS.tier} --results {ATLAS.folder} "
        "--captions workflow/report --output {output:q} > {log:q} 2>&1"
