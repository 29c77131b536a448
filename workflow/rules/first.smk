"""The shortest way to a result: one exact claim, its figure, its tests and its verdict."""


rule first:
    """The counter-example to dp_sgld's privacy theorem: figure, tests and verdict in a minute."""
    input:
        figure=f"{FIGURES}/sgld_counterexample.png",
        records=ATLAS.behind("sgld_counterexample"),
        claims=ATLAS.files("claims.yaml"),
        errata=ATLAS.files("errata.yaml"),
    output:
        claims=f"{ATLAS.folder}/first/claims.csv",
        finding=f"{ATLAS.folder}/first/finding.txt",
    log:
        f"{LOGS}/first.log",
    priority: SHOWN
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        verdicts="" if ATLAS.config.verdicts else "--without-verdicts",
        folder=subpath(output.claims, parent=True),
        code=code_digest(
            "dpatlas_workflow.evidence.first", "dpatlas_workflow.papers.dp_sgld.claims"
        ),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.evidence.first --claim sgld-7 --tier {params.tier} {params.verdicts} "
        "--figure {input.figure:q} --records {input.records:q} --output {params.folder:q} "
        "> {log:q} 2>&1"
