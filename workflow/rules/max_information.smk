"""max_information: certificates with priors learned by DP-SGD (Lampert and Zakerinia 2026)."""


rule max_information:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/max_information/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/max_information/{{id}}/cost.json",
    log:
        f"{LOGS}/max_information/{{id}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards: ATLAS.memory_mb(wildcards.id),
        runtime=lambda wildcards: runtime_minutes(ATLAS, wildcards.id),
        gpu=lambda wildcards: int(ATLAS.device(wildcards.id) != "cpu"),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        # Figs. 1 and 2 are formulas.
        data=lambda wildcards, input: "--data" if input.data else "",
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.papers.max_information.jobs.dispatch"),
    shell:
        "python -m dpatlas.papers.max_information.jobs.dispatch --spec {params.spec:q} {params.data} "
        "{input.data:q} --record {output.record:q} --checkpoints {params.checkpoints:q} "
        "--device {params.device} > {log:q} 2>&1"
