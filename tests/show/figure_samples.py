"""What tests of figures and tables share: records, and what can be read off what is drawn."""

import csv
import functools
import importlib
import io

import matplotlib.style
import numpy as np
from matplotlib.text import Text

from dpatlas.base.canonical import canonical_json
from dpatlas.base.files import write_json
from dpatlas.base.records import FIELDS, SCHEMA_VERSION, make_record, versions
from dpatlas.base.specs import Spec
from dpatlas_workflow.config.products import all_products
from dpatlas_workflow.records import parse_record, shape_of
from dpatlas_workflow.show import look
from dpatlas_workflow.show.output import to_csv
from dpatlas_workflow.show.plot import plot

FIGURE_FILES, TABLE_FILES = ("csv", "json", "pdf", "png", "svg"), ("csv", "md", "tex")
# Looked up once: it takes longer than a small record.
VERSIONS = versions("numpy")
# Pixels by which rounding may take a text beyond the edge of its figure.
EDGE = 1.5


def sample_record(spec, metrics, slug=None, data=None, ledger=None):
    """The `Record` that a job with these fields and facts and rows writes."""
    frozen = Spec.of(spec.model_dump(mode="json", exclude_unset=True), slug or spec.kind)
    content = make_record(
        frozen,
        shape_of(spec.key, spec.kind),
        code_digest="0" * 16,
        versions=VERSIONS,
        device="cpu",
        data=data,
        seeds={"base": spec.seed},
        ledger=ledger or {"mechanism": "noisy gradient descent"},
        metrics=metrics,
    )
    return parse_record(content, frozen.id)


def tables_of(arms, shape):
    """Tables `arms` and `runs` of arms whose measurements are lists over runs."""
    columns, measured = shape.columns("arms"), shape.columns("runs")[2:]
    runs = range(len(arms[0][measured[0]])) if arms else ()
    return {
        "arms": [
            {"arm": i, **{name: arm.get(name) for name in columns[1:]}}
            for i, arm in enumerate(arms)
        ],
        "runs": [
            {"run": run, "arm": i, **{name: arm[name][run] for name in measured}}
            for i, arm in enumerate(arms)
            for run in runs
        ],
    }


def as_json(record):
    """What `record.json` holds of a `Record`."""
    read = [name for name in FIELDS if name not in ("schema_version", "metrics")]
    parts = {name: getattr(record, name) for name in read}
    parts["spec"] = record.spec.model_dump(mode="json", exclude_unset=True)
    parts["metrics"] = {**record.facts, **record.tables}
    return {"schema_version": SCHEMA_VERSION, **parts, "metrics_version": record.shape.version}


def blocks_of(record, size):
    """The records of the blocks of `size` runs that `record`, of one block, consists of."""
    slug, blocks = record.condition.rpartition("-")[0], []
    for first in range(0, record.spec.runs, size):
        runs = range(first, first + size)
        tables = {
            table: [row for row in rows if row.get("run", first) in runs]
            for table, rows in record.tables.items()
        }
        spec = record.spec.model_copy(update={"first_run": first, "runs": size})
        blocks.append(sample_record(spec, {**record.facts, **tables}, f"{slug}-run{first}"))
    return blocks


@functools.cache
def products():
    """(product, name of its module) by the name of every figure and table."""
    listed = all_products().items()
    return {name: (product, block.product_module(name)) for name, (product, block) in listed}


def names_of(key, kind):
    """Names of a block's products of a kind, `figure` or `table`."""
    listed = all_products().items()
    return [name for name, (each, block) in listed if (block.key, each.kind) == (key, kind)]


def maker(name):
    """The function that makes a figure or table."""
    return getattr(importlib.import_module(products()[name][1]), name)


def show_words(name, records, settings, folder, tier="trial"):
    """The arguments with which `show.make` makes `name` under `folder` from records there.

    Files come to `made`, the lineage to `lineage`.
    """
    paths = [folder / "runs" / each.key / each.id / "record.json" for each in records]
    for path, record in zip(paths, records, strict=True):
        write_json(path, as_json(record))
    listed = folder / f"{name}.txt"
    listed.write_text("".join(f"{path}\n" for path in paths))
    return [
        *(products()[name][1], "--tier", tier, "--settings", canonical_json(settings)),
        *("--output", str(folder / "made"), "--lineage", str(folder / f"lineage/{name}.json")),
        *("--records", str(listed)),
    ]


def drawn(shown):
    """The picture of a figure, without the notes below it."""
    with matplotlib.style.context(["default", look.STYLE]):
        return plot(shown)


def csv_rows(content):
    """Rows of a csv file's bytes, every value as text."""
    return list(csv.DictReader(io.StringIO(content.decode())))


def shown_rows(shown):
    """Rows of the csv beside a figure or table."""
    return csv_rows(to_csv(shown.columns, shown.rows, "trial"))


def drawn_heights(figure):
    """Heights of every line of every panel, of curves and of bars, as `heights` has them."""
    drawn = [line.get_ydata() for axes in figure.axes for line in axes.get_lines()]
    return [line for line in map(heights, drawn) if line]


def heights(values):
    """Known values to ten digits."""
    known = [float(value) for value in values if value not in (None, "")]
    return tuple(float(f"{value:.10g}") for value in known if np.isfinite(value))


def select(rows, **keys):
    """The rows whose keys have the given values."""
    return [row for row in rows if all(row.get(name) == value for name, value in keys.items())]


def smallest_text(figure):
    """Size in points of the smallest text that is drawn."""
    figure.draw_without_rendering()
    return min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text())


def cut_off(figure):
    """Texts other than ticks' that reach beyond the edge of a figure that has been drawn."""
    # Ticks beyond the ends of an axis have labels, which are not drawn.
    ticks = {
        text
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for text in axis.findobj(Text)
        if text is not axis.label
    }
    left, bottom, right, top = figure.bbox.extents
    found = []
    for text in set(figure.findobj(Text)) - ticks:
        if text.get_text().strip() and text.get_visible():
            box = text.get_window_extent()
            inside = left - EDGE <= box.x0 and box.x1 <= right + EDGE
            if not (inside and bottom - EDGE <= box.y0 and box.y1 <= top + EDGE):
                found.append(text.get_text())
    return found
