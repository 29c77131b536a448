"""Every figure and table: a rule of its own name, from the records behind it."""

for name, key in {**ATLAS.figures, **ATLAS.tables}.items():
    if name in ATLAS.figures:
        kind, folder, shown, others = "figure", FIGURES, "png", FIGURE_FILES
    else:
        kind, folder, shown, others = "table", TABLES, "csv", TABLE_FILES

    rule:
        name:
            name
        input:
            records=ATLAS.behind(name),
            style=STYLE,
        output:
            multiext(f"{folder}/{name}", *others),
            lineage=f"{LINEAGE}/{name}.json",
            shown=report(
                f"{folder}/{name}.{shown}",
                caption=f"../report/{name}.rst",
                category=key,
                labels={kind: name, "paper": ATLAS.blocks[key].PLACES[name]},
            ),
        log:
            f"{LOGS}/{name}.log",
        conda:
            "../../environment.yml"
        threads: 1
        params:
            name=name,
            tier=ATLAS.tier,
            module=ATLAS.figures_module(key),
            folder=subpath(output.shown, parent=True),
            settings=ATLAS.settings(key),
            code=code_digest(ATLAS.figures_module(key)),
        shell:
            "python -m {params.module} {params.name} --tier {params.tier} "
            "--settings {params.settings:q} --output {params.folder:q} "
            "--lineage {output.lineage:q} --records {input.records:q} > {log:q} 2>&1"
