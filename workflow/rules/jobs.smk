"""Runs: a rule for each kind of job, named after its block and kind; a spec in, a record out."""

for key in ATLAS.blocks:
    for kind, ids in ATLAS.kinds(key).items():
        # They write weights beside the record and have rules of their own: pretrain.smk. A partial
        # run has no rules for any: what changed since would be made again.
        if kind in ATLAS.blocks[key].writes_weights or ATLAS.config.partial:
            continue

        rule:
            name:
                f"{key}_{kind}"
            input:
                data=of_job("data"),
                public=of_job("public_data"),
                backbones=of_job("weights"),
                features=of_job("features"),
                tuning=of_job("tuning"),
            output:
                record=f"{ATLAS.folder}/runs/{key}/{{id}}/record.json",
                cost=f"{ATLAS.folder}/runs/{key}/{{id}}/cost.json",
            log:
                f"{LOGS}/{key}_{kind}/{{id}}.log",
            wildcard_constraints:
                id=any_of(ids, set(chain(*ATLAS.kinds(key).values())) - set(ids)),
            priority: SHORT if seconds_of(ids) < SHORT_SECONDS else 0
            conda:
                "../../environment.yml"
            threads: 1
            resources:
                mem_mb=lambda wildcards, attempt: attempt
                * ATLAS.job(wildcards.id).memory_mb,
                runtime=minutes_of,
                gpu=lambda wildcards: int(ATLAS.job(wildcards.id).device != "cpu"),
            params:
                spec=lambda wildcards: ATLAS.spec(wildcards.id).argument,
                inputs=of_job("arguments"),
                checkpoints=CHECKPOINTS,
                device=of_job("device"),
                code=code_digest(ATLAS.blocks[key].job_module(kind)),
            shell:
                "python -m dpatlas.base.fork dpatlas_workflow.run --spec {params.spec:q} {params.inputs} "
                "--record {output.record:q} --checkpoints {params.checkpoints:q} "
                "--device {params.device} > {log:q} 2>&1"

        made = workflow.get_rule(f"{key}_{kind}")
        made.docstring = ATLAS.blocks[key].about(kind)
        # Snakemake cannot measure a fork, whose time and memory are in cost.json.
        if not workflow.local_exec or workflow.remote_exec:
            made.benchmark_modifier = made.log_modifier
            made.benchmark = f"{ATLAS.folder}/benchmarks/{key}_{kind}/{{id}}.tsv"
