"""Figure maxinf_coefficients: the coefficients of Prop. 1 beside those of pure privacy."""

import math
from typing import Any

from matplotlib.figure import Figure

from dpatlas.records import Record
from dpatlas.rows import columns
from dpatlas.show.draw import draw_curves, draw_printed, frame, printed_handle
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import legend
from dpatlas.show.series import RED, handle, only, ramp

PURE = Look("Dwork et al., pure privacy", RED, "", "-")
LEMMA_6 = (0.25, 2.0)
OURS, PRINTED = "ours", "printed"
# The value of R in the proof of Lemma 6, Eq. 92.
PRINTED_RATIO = {"alpha": 3.0, "beta": 0.5, "value": 1.95}
# Markers on a curve.
MARKERS = 4
# By panel: its title, and the quantity on its axis.
QUANTITIES = {
    "leading": (r"coefficient of $m s^2 / \sigma^2$", "$c_1$"),
    "root": (r"coefficient of $\sqrt{m}\, s / \sigma$", "$c_2$"),
    "ratio": ("Prop. 1's $c_1$ over Dwork et al.'s", "$R$"),
}


def maxinf_coefficients(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 1: both coefficients against beta beside those of pure privacy, and Lemma 6's ratio.

    Raises InputError unless there is exactly one record of kind `coefficients`.
    """
    record = only(records, "coefficients")
    rows = coefficient_rows(record)
    if PRINTED_RATIO["alpha"] in record.spec.alphas:
        printed = {"panel": "ratio", "source": PRINTED, **PRINTED_RATIO, "runs": [record.id]}
        rows.append(printed)
    alphas = sorted(record.spec.alphas)
    names = [rf"$\alpha$ = {alpha:g}" for alpha in alphas]
    looks: dict[float | str, Look] = dict(zip(alphas, ramp(names), strict=True))
    looks["pure"] = PURE
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.7))
    data = frame(rows)
    # Rows of pure privacy have no alpha.
    data["alpha"] = data["alpha"].astype(object).fillna("pure")
    for (panel, (title, quantity)), axes in zip(
        QUANTITIES.items(), figure.subplots(1, 3), strict=True
    ):
        axes.set(xscale="log", xlabel=r"$\beta$", title=title, ylabel=quantity)
        curves = data[(data.panel == panel) & (data.source == OURS)]
        draw_curves(axes, curves, "beta", looks, "alpha")
        # Curves lie close together; markers at different points keep them apart.
        every = max(1, curves.beta.nunique() // MARKERS)
        for number, line in enumerate(axes.get_lines()):
            line.set_markevery((number % every, every))
        axes.set_ylim(bottom=0)
        if panel == "ratio":
            axes.set_ylim(top=1.05 * LEMMA_6[1])
            draw_printed(axes, data[data.source == PRINTED], "beta", looks, "alpha")
            for limit in LEMMA_6:
                axes.axhline(limit, color=MUTED, linewidth=THIN, zorder=1)
    handles = [handle(look) for look in looks.values()]
    if (data.source == PRINTED).any():
        handles.append(printed_handle())
    legend(figure, handles, columns=math.ceil(len(handles) / 2))
    notes = [
        "pure privacy: delta = beta, and the epsilon for which the Gaussian mechanism is (epsilon, "
        "delta)-private; no pure mechanism has this noise, so only the sizes of coefficients can "
        "be compared; thin lines: Lemma 6, R between 1/4 and 2 for alpha up to 3 and beta up to 1/2"
    ]
    return ShownFigure(figure, ("panel", "source", "alpha", "beta", "value"), rows, notes)


def coefficient_rows(record: Record[Any, Any]) -> list[Row]:
    """The points of every panel; those of pure privacy, which do not depend on alpha, once."""
    rows = []
    data = columns([record])
    data = data.assign(gaussian_ratio=data.gaussian_leading / data.pure_dp_leading)
    for number, (alpha, curve) in enumerate(data.groupby("alpha", sort=False)):
        pure = [] if number else [("pure_dp", None, "leading"), ("pure_dp", None, "root")]
        for of, shown_alpha, panel in (*pure, *(("gaussian", alpha, each) for each in QUANTITIES)):
            rows += [
                {
                    "panel": panel,
                    "source": OURS,
                    "alpha": shown_alpha,
                    "beta": beta,
                    "value": value,
                    "runs": [record.id],
                }
                for beta, value in zip(curve.beta, curve[f"{of}_{panel}"], strict=True)
            ]
    return rows
