"""Runs: a rule for each kind of job, named after its block and kind; a spec in, a record out."""

for key in ATLAS.blocks:
    for kind, ids in ATLAS.kinds(key).items():
        # They write weights beside the record and have rules of their own: pretrain.smk.
        if kind in ATLAS.blocks[key].writes_weights:
            continue

        rule:
            name:
                f"{key}_{kind}"
            input:
                data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
                public=lambda wildcards: ATLAS.public_manifest(wildcards.id),
                backbones=lambda wildcards: ATLAS.backbone_files(wildcards.id),
                features=lambda wildcards: ATLAS.features_manifest(wildcards.id),
                tuning=lambda wildcards: ATLAS.tuning_record(wildcards.id),
            output:
                record=f"{ATLAS.folder}/runs/{key}/{{id}}/record.json",
                cost=f"{ATLAS.folder}/runs/{key}/{{id}}/cost.json",
            log:
                f"{LOGS}/{key}_{kind}/{{id}}.log",
            benchmark:
                f"{ATLAS.folder}/benchmarks/{key}_{kind}/{{id}}.tsv"
            wildcard_constraints:
                id=any_of(ids, set(chain(*ATLAS.kinds(key).values())) - set(ids)),
            priority: SHORT if seconds_of(ids) < SHORT_SECONDS else 0
            conda:
                "../../environment.yml"
            threads: 1
            resources:
                mem_mb=lambda wildcards, attempt: attempt
                * ATLAS.memory_mb(wildcards.id),
                runtime=lambda wildcards, attempt: minutes(
                    job_seconds(ATLAS, wildcards.id), attempt
                ),
                gpu=lambda wildcards: int(ATLAS.device(wildcards.id) != "cpu"),
            params:
                spec=lambda wildcards: ATLAS.spec(wildcards.id).argument,
                inputs=lambda wildcards: ATLAS.input_arguments(wildcards.id),
                checkpoints=CHECKPOINTS,
                device=lambda wildcards: ATLAS.device(wildcards.id),
                code=code_digest(ATLAS.blocks[key].job_module(kind)),
            shell:
                "python -m dpatlas.jobs --spec {params.spec:q} {params.inputs} "
                "--record {output.record:q} --checkpoints {params.checkpoints:q} "
                "--device {params.device} > {log:q} 2>&1"

        workflow.get_rule(f"{key}_{kind}").docstring = ATLAS.blocks[key].about(kind)
