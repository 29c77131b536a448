"""dp_sgld: Langevin SGD against DP-SGD on frozen features (Ryffel et al. 2022)."""


rule dp_sgld:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
        backbones=lambda wildcards: ATLAS.backbone_files(wildcards.id),
        features=lambda wildcards: ATLAS.features_manifest(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/dp_sgld/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/dp_sgld/{{id}}/cost.json",
    log:
        f"{LOGS}/dp_sgld/{{id}}.log",
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
        # Some kinds train on nothing, and raw features need no backbone.
        data=lambda wildcards, input: "--data" if input.data else "",
        backbones=lambda wildcards: ATLAS.backbone_arguments(wildcards.id),
        features=lambda wildcards: ATLAS.features_arguments(wildcards.id),
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.papers.dp_sgld.jobs.dispatch"),
    shell:
        "python -m dpatlas.papers.dp_sgld.jobs.dispatch --spec {params.spec:q} {params.data} {input.data:q} "
        "{params.backbones} {params.features} --record {output.record:q} --checkpoints {params.checkpoints:q} "
        "--device {params.device} > {log:q} 2>&1"
