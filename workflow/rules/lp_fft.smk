"""lp_fft: linear probing before full fine-tuning, in private (DP-LP-FFT)."""


rule lp_fft:
    input:
        data=lambda wildcards: ATLAS.data_manifest(wildcards.id),
        public=lambda wildcards: ATLAS.public_manifest(wildcards.id),
        backbones=lambda wildcards: ATLAS.backbone_files(wildcards.id),
        features=lambda wildcards: ATLAS.features_manifest(wildcards.id),
    output:
        record=f"{ATLAS.folder}/runs/lp_fft/{{id}}/record.json",
        cost=f"{ATLAS.folder}/runs/lp_fft/{{id}}/cost.json",
    log:
        f"{LOGS}/lp_fft/{{id}}.log",
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
        # The theory trains on nothing; only the quality of features looks at public images.
        data=lambda wildcards, input: "--data" if input.data else "",
        public=lambda wildcards, input: "--public-data" if input.public else "",
        backbones=lambda wildcards: ATLAS.backbone_arguments(wildcards.id),
        features=lambda wildcards: ATLAS.features_arguments(wildcards.id),
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.papers.lp_fft.jobs.dispatch"),
    shell:
        "python -m dpatlas.papers.lp_fft.jobs.dispatch --spec {params.spec:q} {params.data} {input.data:q} "
        "{params.public} {input.public:q} {params.backbones} {params.features} --record {output.record:q} "
        "--checkpoints {params.checkpoints:q} --device {params.device} > {log:q} 2>&1"
