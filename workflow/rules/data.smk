"""Data sets and published weights: from local copies or downloads; nothing is trained here."""


localrules:
    data,
    data_set,
    weights,
    weights_file,


rule data:
    """Every data set of the tier, fetched and prepared; nothing is trained."""
    input:
        expand(f"{ATLAS.folder}/data/{{id}}/manifest.json", id=ATLAS.data_sets),


rule weights:
    """Every file of published weights that the tier takes, fetched; nothing is imported."""
    input:
        list(ATLAS.weights_files.values()),


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
    # No parameter: where files lie does not matter once they have been read.
    resources:
        source=lambda wildcards: ATLAS.data_source(wildcards.id),
    params:
        options=lambda wildcards: ATLAS.data_sets[wildcards.id],
        folder=subpath(output[0], parent=True),
        state=lambda wildcards: ATLAS.own_state(wildcards.id),
        code=lambda wildcards: code_digest(*ATLAS.data_modules(wildcards.id)),
    shell:
        "python -m dpatlas.base.fork dpatlas.data.prepare --options {params.options:q} "
        "--output {params.folder:q} {resources.source} > {log:q} 2>&1"


rule weights_file:
    """A file of published weights, from a local copy or a download; it is not opened."""
    output:
        f"{ATLAS.folder}/weights/{{id}}/{{file}}",
    log:
        f"{LOGS}/weights_file/{{id}}_{{file}}.log",
    wildcard_constraints:
        file="[^/]+",
    retries: 2
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        source=lambda wildcards: ATLAS.data_source(),
    params:
        # Functions: Snakemake would look for wildcards in a text with braces.
        weights=lambda wildcards: ATLAS.weights_arguments(wildcards.id),
        state=lambda wildcards: ATLAS.weights_state(wildcards.id),
        code=code_digest("dpatlas.data.fetch_weights"),
    shell:
        "python -m dpatlas.base.fork dpatlas.data.fetch_weights {params.weights} --output {output:q} "
        "{resources.source} > {log:q} 2>&1"
