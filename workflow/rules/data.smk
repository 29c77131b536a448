"""Data sets: read from local copies or downloaded, selected and scaled once per run."""


localrules:
    data,
    data_set,


rule data:
    """Every data set of the tier, fetched and prepared; nothing is trained."""
    input:
        expand(f"{ATLAS.folder}/data/{{id}}/manifest.json", id=ATLAS.data_sets()),


rule data_set:
    """A data set, from local copies or downloads."""
    output:
        f"{ATLAS.folder}/data/{{id}}/manifest.json",
        f"{ATLAS.folder}/data/{{id}}/arrays.npz",
    log:
        f"{LOGS}/data/{{id}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        options=lambda wildcards: ATLAS.data_sets()[wildcards.id],
        folder=subpath(output[0], parent=True),
        source=lambda wildcards: ATLAS.data_source(wildcards.id),
        state=lambda wildcards: ATLAS.own_state(wildcards.id),
        code=lambda wildcards: code_digest(*ATLAS.data_modules(wildcards.id)),
    shell:
        "python -m dpatlas.data.prepare --options {params.options:q} "
        "--output {params.folder:q} {params.source} > {log:q} 2>&1"
