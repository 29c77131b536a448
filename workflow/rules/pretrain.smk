"""pretrain: public backbones, trained once or imported, and their features."""


rule pretrain_backbone:
    """A backbone, trained on public data."""
    input:
        data=of_job("data"),
    output:
        record=f"{ATLAS.folder}/runs/pretrain/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/pretrain/{{id}}/cost.json",
        manifest=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/manifest.json",
        weights=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/weights.npz",
    log:
        f"{LOGS}/pretrain_backbone/{{id}}.log",
    wildcard_constraints:
        id=any_of(ATLAS.ids("pretrain", "backbones")),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt * ATLAS.job(wildcards.id).memory_mb,
        runtime=minutes_of,
        gpu=lambda wildcards: int(ATLAS.job(wildcards.id).device != "cpu"),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        device=of_job("device"),
        backbone=subpath(output.manifest, parent=True),
        code=code_digest(ATLAS.blocks["pretrain"].job_module("backbone")),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.run --spec {params.spec:q} --data {input.data:q} "
        "--backbone {params.backbone:q} --record {output.record:q} "
        "--checkpoints {params.checkpoints:q} --device {params.device} > {log:q} 2>&1"


rule pretrain_imported:
    """A backbone with published weights."""
    input:
        weights=lambda wildcards: ATLAS.weights_files[wildcards.id],
    output:
        record=f"{ATLAS.folder}/runs/pretrain/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/pretrain/{{id}}/cost.json",
        manifest=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/manifest.json",
        weights=f"{ATLAS.folder}/runs/pretrain/{{id}}/backbone/weights.npz",
    log:
        f"{LOGS}/pretrain_imported/{{id}}.log",
    wildcard_constraints:
        id=any_of(ATLAS.ids("pretrain", "imported")),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt * ATLAS.job(wildcards.id).memory_mb,
        runtime=minutes_of,
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        backbone=subpath(output.manifest, parent=True),
        code=code_digest(ATLAS.blocks["pretrain"].job_module("imported")),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.run --spec {params.spec:q} "
        "--backbone {params.backbone:q} --record {output.record:q} "
        "--checkpoints {params.checkpoints:q} --weights-file={input.weights:q} "
        "> {log:q} 2>&1"


# Each data set is shown to all jobs by one pass of each frozen backbone that they take.
rule features:
    """Features of a data set, as a frozen backbone shows them."""
    input:
        data=lambda wildcards: ATLAS.features_files(wildcards.id)[0],
        backbone=lambda wildcards: ATLAS.features_files(wildcards.id)[1],
    output:
        manifest=f"{ATLAS.folder}/features/{{id}}/manifest.json",
        arrays=expand(
            f"{ATLAS.folder}/features/{{{{id}}}}/{{array}}.npy",
            array=[
                "x_train",
                "x_validation",
                "x_test",
                "y_train",
                "y_validation",
                "y_test",
            ],
        ),
    log:
        f"{LOGS}/features/{{id}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: attempt
        * ATLAS.features_memory_mb(wildcards.id),
        runtime=minutes_of,
        gpu=lambda wildcards: int(ATLAS.features_device() != "cpu"),
    params:
        folder=subpath(output.manifest, parent=True),
        backbone=lambda wildcards: ATLAS.backbone(
            ATLAS.frozen_features[wildcards.id].backbone.id
        ),
        device=ATLAS.features_device(),
        code=code_digest("dpatlas_workflow.run.features"),
    shell:
        "python -m dpatlas.base.fork dpatlas_workflow.run.features --data {input.data:q} "
        "--backbone {params.backbone:q} --output {params.folder:q} --device {params.device} "
        "> {log:q} 2>&1"
