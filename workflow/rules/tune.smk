"""Settings of the reported runs, tried on records that no run is dealt."""


localrules:
    tuned,


rule tune:
    """All tunings, whether or not their outcome is shipped."""
    input:
        [ATLAS.tuned_file(key) for key in ATLAS.tuned_papers],


rule tuned:
    """The outcomes of a paper's tunings."""
    input:
        records=lambda wildcards: [
            ATLAS.record(name) for name in ATLAS.tunings_of(wildcards.key)
        ],
    output:
        ATLAS.tuned_file("{key}"),
    log:
        f"{LOGS}/tuned/{{key}}.log",
    wildcard_constraints:
        key=any_of(ATLAS.tuned_papers),
    conda:
        "../../environment.yml"
    threads: 1
    params:
        code=code_digest("dpatlas_workflow.report.tuned"),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.report.tuned --records {input.records:q} --output {output:q} "
        "> {log:q} 2>&1"
