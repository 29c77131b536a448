"""pretrain: public backbones, trained once or imported, and what their features are worth."""


localrules:
    pretrain_imported,


rule pretrain_backbone:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/pretrain/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/pretrain/{{id}}/cost.json",
        manifest=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/manifest.json",
        weights=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/weights.npz",
    log:
        f"{LOGS}/pretrain/{{id}}.log",
    wildcard_constraints:
        id="|".join(map(re.escape, ATLAS.ids("pretrain", "backbones"))),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards: ATLAS.memory_mb(wildcards.id),
        gpu=lambda wildcards: int(ATLAS.device(wildcards.id) != "cpu"),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        device=lambda wildcards: ATLAS.device(wildcards.id),
        backbone=subpath(output.manifest, parent=True),
        code=code_digest("dpatlas.experiments.pretrain"),
    shell:
        "python -m dpatlas.experiments.pretrain --spec {params.spec:q} --data {input.data:q} "
        "--backbone {params.backbone:q} --record {output.record:q} "
        "--checkpoints {params.checkpoints:q} --device {params.device} > {log:q} 2>&1"


rule pretrain_imported:
    output:
        record=f"{ATLAS.folder}/runs/pretrain/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/pretrain/{{id}}/cost.json",
        manifest=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/manifest.json",
        weights=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/weights.npz",
    log:
        f"{LOGS}/pretrain/{{id}}.log",
    wildcard_constraints:
        # Most tiers import none, and then nothing may match.
        id="|".join(map(re.escape, ATLAS.ids("pretrain", "imported"))) or "(?!)",
    retries: 2
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards: ATLAS.memory_mb(wildcards.id),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        source=ATLAS.data_source(),
        backbone=subpath(output.manifest, parent=True),
        code=code_digest("dpatlas.experiments.pretrain"),
    shell:
        "python -m dpatlas.experiments.pretrain --spec {params.spec:q} "
        "--backbone {params.backbone:q} --record {output.record:q} "
        "--checkpoints {params.checkpoints:q} {params.source} > {log:q} 2>&1"


rule pretrain_transfer:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
        backbones=lambda wildcards: ATLAS.backbone_files(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/pretrain/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/pretrain/{{id}}/cost.json",
    log:
        f"{LOGS}/pretrain/{{id}}.log",
    wildcard_constraints:
        id="|".join(map(re.escape, ATLAS.ids("pretrain", "transfer"))),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards: ATLAS.memory_mb(wildcards.id),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        backbones=lambda wildcards: ATLAS.backbone_arguments(wildcards.id),
        code=code_digest("dpatlas.experiments.pretrain"),
    shell:
        "python -m dpatlas.experiments.pretrain --spec {params.spec:q} --data {input.data:q} "
        "{params.backbones} --record {output.record:q} --checkpoints {params.checkpoints:q} "
        "> {log:q} 2>&1"
