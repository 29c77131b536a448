"""Every figure and table: a rule of its own name, from the records behind it."""

for name, product in ATLAS.products.items():
    block = ATLAS.block_of_product[name]
    if product.kind == "figure":
        folder, shown, others = FIGURES, "png", FIGURE_FILES
    else:
        folder, shown, others = TABLES, "csv", TABLE_FILES

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
                caption=Path(LISTS, "captions", f"{name}.rst").absolute(),
                category=block.key,
                labels={product.kind: name, "paper": product.place},
            ),
        log:
            f"{LOGS}/{name}.log",
        priority: SHOWN
        group:
            cluster_group(block.key)
        conda:
            "../../environment.yml"
        threads: 1
        params:
            module=block.product_module(name),
            tier=ATLAS.tier,
            folder=subpath(output.shown, parent=True),
            records=f"{LISTS}/{name}.txt",
            settings=ATLAS.settings(block.key),
            # What it shows, and what draws that and writes its files.
            code=code_digest(block.product_module(name), "dpatlas_workflow.show.make"),
        shell:
            "python -m dpatlas.base.fork dpatlas_workflow.show {params.module} --tier {params.tier} "
            "--settings {params.settings:q} --output {params.folder:q} "
            "--lineage {output.lineage:q} --records {params.records:q} > {log:q} 2>&1"

    workflow.get_rule(name).docstring = f"{product.place}: {product.title}"


for name, reason in ATLAS.left_out.items():

    rule:
        name:
            name
        input:
            functools.partial(refuse, reason),
