"""audit: attacks on our own private mechanisms, and a network trained by them."""


rule audit_run:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/audit/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/audit/{{id}}/cost.json",
    log:
        f"{LOGS}/audit_run/{{id}}.log",
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
        # A mechanism is attacked on data sets of the attacker's own.
        data=lambda wildcards, input: "--data" if input.data else "",
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.checks.audit.jobs.dispatch"),
    shell:
        "python -m dpatlas.checks.audit.jobs.dispatch --spec {params.spec:q} {params.data} {input.data:q} "
        "--record {output.record:q} --checkpoints {params.checkpoints:q} --device {params.device} "
        "> {log:q} 2>&1"
