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
        gpu=lambda wildcards: int(ATLAS.device(wildcards.id) != "cpu"),
    params:
        checkpoints=CHECKPOINTS,
        spec=lambda wildcards: ATLAS.specs[wildcards.id].argument,
        device=lambda wildcards: ATLAS.device(wildcards.id),
        code=code_digest("dpatlas.experiments.kl_privacy"),
    shell:
        "python -m dpatlas.experiments.kl_privacy --spec {params.spec:q} --data {input.data:q} "
        "--record {output.record:q} --checkpoints {params.checkpoints:q} --device {params.device} "
        "> {log:q} 2>&1"


rule kl_vs_epochs:
    input:
        records=ATLAS.behind("kl_vs_epochs"),
        style=STYLE,
    output:
        multiext(f"{FIGURES}/kl_vs_epochs", *FIGURE_FILES),
        lineage=f"{LINEAGE}/kl_vs_epochs.json",
        png=report(
            f"{FIGURES}/kl_vs_epochs.png",
            caption="../report/kl_vs_epochs.rst",
            category="kl_privacy",
            labels={"figure": "kl_vs_epochs", "paper": "Fig. 1"},
        ),
    log:
        f"{LOGS}/kl_vs_epochs.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.png, parent=True),
        settings=ATLAS.settings("kl_privacy"),
        code=code_digest("dpatlas.figures.kl_privacy"),
    shell:
        "python -m dpatlas.figures.kl_privacy kl_vs_epochs --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule kl_vs_depth:
    input:
        records=ATLAS.behind("kl_vs_depth"),
        style=STYLE,
    output:
        multiext(f"{FIGURES}/kl_vs_depth", *FIGURE_FILES),
        lineage=f"{LINEAGE}/kl_vs_depth.json",
        png=report(
            f"{FIGURES}/kl_vs_depth.png",
            caption="../report/kl_vs_depth.rst",
            category="kl_privacy",
            labels={"figure": "kl_vs_depth", "paper": "Fig. 2a, 2b"},
        ),
    log:
        f"{LOGS}/kl_vs_depth.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.png, parent=True),
        settings=ATLAS.settings("kl_privacy"),
        code=code_digest("dpatlas.figures.kl_privacy"),
    shell:
        "python -m dpatlas.figures.kl_privacy kl_vs_depth --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule kl_vs_width:
    input:
        records=ATLAS.behind("kl_vs_width"),
        style=STYLE,
    output:
        multiext(f"{FIGURES}/kl_vs_width", *FIGURE_FILES),
        lineage=f"{LINEAGE}/kl_vs_width.json",
        png=report(
            f"{FIGURES}/kl_vs_width.png",
            caption="../report/kl_vs_width.rst",
            category="kl_privacy",
            labels={"figure": "kl_vs_width", "paper": "Fig. 2c"},
        ),
    log:
        f"{LOGS}/kl_vs_width.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.png, parent=True),
        settings=ATLAS.settings("kl_privacy"),
        code=code_digest("dpatlas.figures.kl_privacy"),
    shell:
        "python -m dpatlas.figures.kl_privacy kl_vs_width --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule kl_bounds:
    input:
        records=ATLAS.behind("kl_bounds"),
        style=STYLE,
    output:
        multiext(f"{FIGURES}/kl_bounds", *FIGURE_FILES),
        lineage=f"{LINEAGE}/kl_bounds.json",
        png=report(
            f"{FIGURES}/kl_bounds.png",
            caption="../report/kl_bounds.rst",
            category="kl_privacy",
            labels={"figure": "kl_bounds", "paper": "Lemma 3.2 and Cor. 4.2"},
        ),
    log:
        f"{LOGS}/kl_bounds.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.png, parent=True),
        settings=ATLAS.settings("kl_privacy"),
        code=code_digest("dpatlas.figures.kl_privacy"),
    shell:
        "python -m dpatlas.figures.kl_privacy kl_bounds --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule kl_tradeoff:
    input:
        records=ATLAS.behind("kl_tradeoff"),
        style=STYLE,
    output:
        multiext(f"{FIGURES}/kl_tradeoff", *FIGURE_FILES),
        lineage=f"{LINEAGE}/kl_tradeoff.json",
        png=report(
            f"{FIGURES}/kl_tradeoff.png",
            caption="../report/kl_tradeoff.rst",
            category="kl_privacy",
            labels={"figure": "kl_tradeoff", "paper": "Sec. 6"},
        ),
    log:
        f"{LOGS}/kl_tradeoff.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.png, parent=True),
        settings=ATLAS.settings("kl_privacy"),
        code=code_digest("dpatlas.figures.kl_privacy"),
    shell:
        "python -m dpatlas.figures.kl_privacy kl_tradeoff --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"


rule kl_constants:
    input:
        records=ATLAS.behind("kl_constants"),
        style=STYLE,
    output:
        multiext(f"{TABLES}/kl_constants", *TABLE_FILES),
        lineage=f"{LINEAGE}/kl_constants.json",
        csv=report(
            f"{TABLES}/kl_constants.csv",
            caption="../report/kl_constants.rst",
            category="kl_privacy",
            labels={"table": "kl_constants", "paper": "Table 1"},
        ),
    log:
        f"{LOGS}/kl_constants.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        tier=ATLAS.tier,
        folder=subpath(output.csv, parent=True),
        settings=ATLAS.settings("kl_privacy"),
        code=code_digest("dpatlas.figures.kl_privacy"),
    shell:
        "python -m dpatlas.figures.kl_privacy kl_constants --tier {params.tier} "
        "--settings {params.settings:q} --output {params.folder:q} --lineage {output.lineage:q} "
        "--records {input.records:q} > {log:q} 2>&1"
