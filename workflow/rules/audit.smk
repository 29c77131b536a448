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
        gpu=lambda wildcards: int(ATLAS.device(wildcards.id) != "cpu"),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        # A mechanism is attacked on data sets of the attacker's own.
        data=lambda wildcards, input: "--data" if input.data else "",
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.experiments.audit"),
    shell:
        "python -m dpatlas.experiments.audit --spec {params.spec:q} {params.data} {input.data:q} "
        "--record {output.record:q} --checkpoints {params.checkpoints:q} --device {params.device} "
        "> {log:q} 2>&1"


rule audit:
    input:
        records=ATLAS.behind("audit"),
        style=STYLE,
    output:
        multiext(f"{TABLES}/audit", *TABLE_FILES),
        lineage=f"{LINEAGE}/audit.json",
        csv=report(
            f"{TABLES}/audit.csv",
            caption="../report/audit.rst",
            category="audit",
            labels={"table": "audit", "paper": "none: our own code"},
        ),
    log:
        f"{LOGS}/audit.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.csv, parent=True),
        settings=ATLAS.settings("audit"),
        code=code_digest("dpatlas.figures.audit"),
    shell:
        "python -m dpatlas.figures.audit audit --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"
