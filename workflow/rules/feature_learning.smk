"""feature_learning: private features of single-index models (M1 report)."""


rule feature_learning:
    output:
        record=f"{ATLAS.folder}/runs/feature_learning/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/feature_learning/{{id}}/cost.json",
    log:
        f"{LOGS}/feature_learning/{{id}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards: ATLAS.memory_mb(wildcards.id),
        runtime=lambda wildcards: runtime_minutes(ATLAS, wildcards.id),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        code=code_digest("dpatlas.papers.feature_learning.jobs.dispatch"),
    shell:
        "python -m dpatlas.papers.feature_learning.jobs.dispatch --spec {params.spec:q} "
        "--record {output.record:q} --checkpoints {params.checkpoints:q} > {log:q} 2>&1"
