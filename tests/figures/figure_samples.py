"""What tests of figures and tables share: a bare record, and what can be read off what it gives."""

import csv
import io

import matplotlib.style
import numpy as np
from matplotlib.text import Text

from dpatlas.core.specs import Spec
from dpatlas.figures import look
from dpatlas.figures.output import to_csv


def bare_record(kind, metrics, key="dp_sgld", **fields):
    """A record with its spec and metrics, and a ledger that says nothing."""
    spec = Spec.of({"key": key, "kind": kind, **fields}, kind)
    return {"id": spec.id, "spec": spec.fields, "metrics": metrics, "ledger": {}}


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
