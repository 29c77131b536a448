"""What tests of figures and tables share: a bare record, and what can be read off what it gives."""

import csv
import io
import json

import matplotlib.style
import numpy as np
from matplotlib.text import Text

from dpatlas.core.canonical import canonical_json
from dpatlas.core.records import FIELDS
from dpatlas.core.specs import Spec
from dpatlas.show import look
from dpatlas.show.output import to_csv

FIGURE_FILES, TABLE_FILES = ("csv", "pdf", "png", "svg"), ("csv", "md", "tex")


def bare_record(kind, metrics, key="dp_sgld", **fields):
    """A record with its spec and metrics, and a ledger that says nothing."""
    spec = Spec.of({"key": key, "kind": kind, **fields}, kind)
    return {"id": spec.id, "spec": spec.fields, "metrics": metrics, "ledger": {}}


def check_job(main, name, records, settings, folder, suffixes):
    """Run a figure's or table's job: it writes every file and names all records behind it."""
    paths = []
    for record in records:
        path = folder / record["id"] / "record.json"
        path.parent.mkdir()
        whole = dict.fromkeys(FIELDS) | {"schema_version": 1} | record
        path.write_text(json.dumps(whole, allow_nan=False))
        paths.append(str(path))
    lineage = folder / "lineage" / f"{name}.json"
    options = ["--tier", "my-tier", "--settings", canonical_json(settings)]
    options += ["--lineage", str(lineage), "--output", str(folder / "made")]
    assert main([name, *options, "--records", *paths]) == 0
    made = {path.name: path.read_bytes() for path in (folder / "made").iterdir()}
    assert set(made) == {f"{name}.{suffix}" for suffix in suffixes}
    readable = next(suffix for suffix in ("svg", "md") if suffix in suffixes)
    assert b"tier my-tier" in made[f"{name}.{readable}"]
    rows = csv_rows(made[f"{name}.csv"])
    behind = {identifier for row in rows for identifier in row["runs"].split(";")}
    assert behind == set(json.loads(lineage.read_text())["records"])


def in_style(draw, records, settings):
    """What `draw` shows in the style that a job sets."""
    with matplotlib.style.context(["default", look.STYLE]):
        return draw(records, settings)


def csv_rows(content):
    """Rows of a csv file's bytes, every value as text."""
    return list(csv.DictReader(io.StringIO(content.decode())))


def shown_rows(shown):
    """Rows of the csv beside a figure or table."""
    return csv_rows(to_csv(shown.columns, shown.rows, "trial"))


def drawn_lines(figure):
    """Every line of every panel as its points; those without a value, and empty lines, left out."""
    found = []
    for axes in figure.axes:
        for line in axes.get_lines():
            points = np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float)
            found.append(tuple(map(tuple, points[np.isfinite(points).all(1)].tolist())))
    return [line for line in found if line]


def smallest_text(figure):
    """Size in points of the smallest text that is drawn."""
    figure.draw_without_rendering()
    return min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text())
