"""kl_privacy: KL privacy loss of noisy gradient descent (Ye et al. 2023)."""


rule kl_privacy:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/kl_privacy/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/kl_privacy/{{id}}/cost.json",
    log:
        f"{LOGS}/kl_privacy/{{id}}.log",
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
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.papers.kl_privacy.jobs.dispatch"),
    shell:
        "python -m dpatlas.papers.kl_privacy.jobs.dispatch --spec {params.spec:q} --data {input.data:q} "
        "--record {output.record:q} --checkpoints {params.checkpoints:q} --device {params.device} "
        "> {log:q} 2>&1"
