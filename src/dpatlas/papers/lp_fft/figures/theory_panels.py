"""The nine panels of lp_fft's theory: each draws a record's part and gives the rows it shows."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from dpatlas.papers.lp_fft.figures.theory_series import (
    EXACT,
    PRINTED,
    curve_rows,
    draw_guide,
    draw_series,
    label_few,
    mean_rows,
    share_rows,
)
from dpatlas.show.look import BAND_ALPHA, MUTED, NOTE_SIZE, Look
from dpatlas.show.output import Row
from dpatlas.show.panels import columns, draw_bars, label_ticks, select, shifts
from dpatlas.show.series import BLUE, RED, SERIES

Record = Mapping[str, Any]

SIMULATED = Look("simulated", "black", "o", "")
ZEROTH = Look("zeroth order", BLUE, "", "-")
BRACKET = Look("bounds", RED, "", "--")
COUNTED = {
    ("head", "random"): "LP, Thm 4.2",
    ("all", "random"): "FFT, Thm 4.3",
    ("all", "aligned"): "FFT, aligned\nheads",
}
OUTSIDE = {
    "zeroth_below": Look("zeroth <", BLUE, "", ""),
    "zeroth_above": Look("zeroth >", "#56B4E9", "", ""),
    "diffusion_below": Look("diffusion <", RED, "", ""),
    "diffusion_above": Look("diffusion >", "#E69F00", "", ""),
}
HATCHES = ("", "///", "", "///")


def head_norm(axes: Axes, record: Record) -> list[Row]:
    """E ||v_t||^2 of linear probing."""
    found, times = record["metrics"]["probing"], record["metrics"]["probing"]["times"]
    panel = "head norm"
    rows = [
        *mean_rows(record, panel, SIMULATED, times, found["norm"], found["norm_standard_error"]),
        *curve_rows(record, panel, PRINTED, times, found["norm_paper"]),
        *curve_rows(record, panel, EXACT, times, found["norm_exact"]),
    ]
    axes.set(xlabel="time $t$", title=r"Eq. 161, $\mathbb{E}\,\Vert v_t\Vert^2$")
    draw_series(axes, rows, (PRINTED, EXACT, SIMULATED))
    axes.set_ylim(bottom=0)
    axes.legend()
    return rows


def loss_ratios(axes: Axes, record: Record) -> list[Row]:
    """E L over the bounds of Thms 4.4 and 4.5."""
    metrics, panel = record["metrics"], "loss over bound"
    found = metrics["probing"]
    looks = [
        Look(r"Thm 4.4, $\gamma$ printed", "black", "v", "-"),
        Look(r"Thm 4.4, $\gamma$ halved", MUTED, "P", "--"),
    ]
    rows = []
    for look, bound in zip(looks, ("loss_bound_paper", "loss_bound_exact"), strict=True):
        rows += _ratios(record, panel, look, found["times"], found, "loss_standard_error", bound)
    for tuned, style in zip(metrics["fine_tuning"], cycle(SERIES), strict=False):
        label = f"Thm 4.5, $d$ = {tuned['d']}, $h$ = {tuned['h']}"
        looks.append(Look(label, style.color, style.marker, style.linestyle))
        rows += _ratios(record, panel, looks[-1], tuned["times"], tuned, "standard_error", "bound")
    axes.set(yscale="log", xlabel="time ($t$; Thm 4.5: $At$)")
    axes.set_title(r"Thms 4.4, 4.5, $\mathbb{E}L$ / bound")
    draw_series(axes, rows, looks)
    draw_guide(axes, 1.0)
    # Room for the legend above the curves.
    low, high = (choose(row["value"] for row in rows) for choose in (min, max))
    axes.set_ylim(low / 1.4, high * (high / low) ** 1.2)
    label_few(axes)
    axes.legend(loc="upper left", handlelength=1.8, labelspacing=0.15, borderpad=0.1)
    return rows


def _ratios(
    record: Record,
    panel: str,
    look: Look,
    times: Sequence[float],
    found: Record,
    errors: str,
    bound: str,
) -> list[Row]:
    """Mean losses and their errors over a bound."""
    scaled = [
        (loss / limit, error / limit)
        for loss, error, limit in zip(found["loss"], found[errors], found[bound], strict=True)
    ]
    return mean_rows(record, panel, look, times, *zip(*scaled, strict=True))


def violations(axes: Axes, record: Record) -> list[Row]:
    """Shares of cases in which a loss leaves its bracket, below and above."""
    counts = record["metrics"]["counts"]
    rows = [
        {
            "panel": "outside the bracket",
            "series": look.label,
            "x": COUNTED[count["phase"], count["heads"]].replace("\n", " "),
            "value": count[name] / count["cases"],
            "count": count[name],
            "trials": count["cases"],
            "runs": [record["id"]],
        }
        for count in counts
        for name, look in OUTSIDE.items()
    ]
    height = 0.8 / len(OUTSIDE)
    for place, (look, hatch) in enumerate(zip(OUTSIDE.values(), HATCHES, strict=True)):
        shown = select(rows, series=look.label)
        at = [k + (place - 1.5) * height for k in range(len(counts))]
        values = [row["value"] for row in shown]
        style = {"color": look.color, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.barh(at, values, height, label=look.label, **style)
        for y, row in zip(at, shown, strict=True):
            if row["count"]:
                text = f" {row['count']} of {row['trials']}"
                axes.text(row["value"], y, text, va="center", fontsize=NOTE_SIZE)
    names = [COUNTED[count["phase"], count["heads"]] for count in counts]
    axes.set_yticks(range(len(counts)), names)
    axes.set(xlim=(0, 1.5), ylim=(len(counts) + 0.7, -0.6), xlabel="share of cases")
    axes.set_xticks([0, 0.5, 1])
    axes.grid(axis="y", visible=False)
    axes.set_title("loss < or > its bracket")
    axes.legend(ncols=2, loc="lower center", handlelength=1, columnspacing=0.6, labelspacing=0.2)
    return rows


def lp_bracket(axes: Axes, record: Record) -> list[Row]:
    """Thm 4.2 for the first draw, at the last noise but one."""
    found = _of_phase(record, "head", "random")
    sigmas = sorted({row["sigma"] for row in found})
    (shown, *_) = select(found, sigma=sigmas[max(0, len(sigmas) - 2)], draw=0)
    rows = _bracket(axes, record, shown, "LP bracket")
    axes.set_title(rf"Thm 4.2, LP, $\sigma$ = {shown['sigma']:g}")
    return rows


def fft_bracket(axes: Axes, record: Record) -> list[Row]:
    """Thm 4.3 for the draw of a random head whose zeroth-order loss is furthest above."""
    found = _of_phase(record, "all", "random")
    shown = max(found, key=lambda row: max(map(_over, row["zeroth"], row["upper"])))
    rows = _bracket(axes, record, shown, "FFT bracket")
    axes.set_title(rf"Thm 4.3, FFT, $\sigma$ = {shown['sigma']:g}, worst draw")
    return rows


def _over(value: float, limit: float) -> float:
    return value / limit


def _of_phase(record: Record, phase: str, heads: str) -> list[Row]:
    return select(record["metrics"]["relu"], phase=phase, heads=heads)


def _bracket(axes: Axes, record: Record, found: Record, panel: str) -> list[Row]:
    """One class's loss between its bounds, from time 0."""
    times = [0.0, *record["metrics"]["times"]]
    curves = {name: [found["start"], *found[name]] for name in ("lower", "upper", "zeroth")}
    rows = [
        row
        for name, values in curves.items()
        for row in curve_rows(record, panel, Look(name, "", "", ""), times, values)
    ]
    axes.fill_between(times, curves["lower"], curves["upper"], color=RED, alpha=BAND_ALPHA, lw=0)
    for name in ("lower", "upper"):
        label = BRACKET.label if name == "lower" else None
        axes.plot(times, curves[name], label=label, **BRACKET.line)
    axes.plot(times, curves["zeroth"], label=ZEROTH.label, **ZEROTH.line)
    look = Look("diffusion", "black", "o", "")
    points = mean_rows(record, panel, look, times[1:], found["diffusion"], found["standard_error"])
    draw_series(axes, points, (look,))
    axes.set(yscale="log", xlabel="time $t$", ylabel="loss of a class")
    label_few(axes)
    axes.legend(labelspacing=0.2)
    return rows + points


def claimed_distortion(axes: Axes, record: Record) -> list[Row]:
    """Probability of distortion on random clusters against h, for every variance of the head."""
    found, panel = record["metrics"]["clusters"], "distortion, clusters"
    claimed = {row["h"]: row["claimed"] for row in found}
    look = Look(r"$1 - 2^{-h}$", "black", "", "-")
    rows = curve_rows(record, panel, look, list(claimed), list(claimed.values()))
    axes.plot(*columns(rows, "x", "value"), label=look.label, **look.line)
    variances = sorted({row["head_variance"] for row in found})
    for variance, style, aside in zip(
        variances, cycle(SERIES), shifts(len(variances)), strict=False
    ):
        series = Look(rf"$\beta_h$ = {variance:g}", style.color, style.marker, "")
        points = share_rows(record, panel, series, "h", select(found, head_variance=variance))
        moved = [{**row, "x": row["x"] + aside / 30} for row in points]
        axes.plot(
            *columns(moved, "x", "value"),
            series.marker,
            color=series.color,
            ms=2.5,
            label=series.label,
        )
        draw_bars(axes, "x", moved, color=series.color)
        rows += points
    axes.set(xlabel="features $h$", title="Thm 3.3, random clusters", ylim=(0.45, 1.02))
    axes.set_ylabel("distortion probability")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="lower right", handlelength=1.2, labelspacing=0.2)
    return rows


def two_records(axes: Axes, record: Record) -> list[Row]:
    """The same for one feature and a class of two records, against the head's variance."""
    found, panel = record["metrics"]["two_records"], "distortion, two records"
    at = [row["head_variance"] for row in found]
    claimed, exact = Look("Thm 3.3", RED, "", "--"), Look("exact", BLUE, "", "-")
    look = Look("simulated", "black", "o", "")
    rows = [
        *curve_rows(record, panel, claimed, at, [row["claimed"] for row in found]),
        *curve_rows(record, panel, exact, at, [row["exact"] for row in found]),
        *share_rows(record, panel, look, "head_variance", found),
    ]
    axes.set(xscale="log", xlabel=r"variance of the head $\beta_h$", ylim=(0, 0.6))
    axes.set(title="Thm 3.3, two records, $h$ = 1", ylabel="distortion probability")
    draw_series(axes, rows, (claimed, exact, look))
    axes.legend(loc="lower left")
    return rows


def after_probing(axes: Axes, record: Record) -> list[Row]:
    """Share of networks without a falling cosine after LP, against the width of the clusters."""
    found, panel = record["metrics"]["after_probing"], "no fall after LP"
    rows, looks = [], []
    spans = sorted({row["fft_span"] for row in found})
    for span, style in zip(spans, cycle(SERIES), strict=False):
        looks.append(Look(f"until $s$ = {span:g}", style.color, style.marker, style.linestyle))
        rows += share_rows(record, panel, looks[-1], "angle", select(found, fft_span=span))
    axes.set(xscale="log", ylim=(0, 1.4), xlabel="angle of the clusters (degrees)")
    axes.set(title="Thm 3.4, no cosine falls", ylabel="share of networks")
    draw_series(axes, rows, looks)
    label_ticks(axes, {row["x"] for row in rows})
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes.legend(loc="upper center", ncols=2, handlelength=1.8, columnspacing=0.8)
    return rows


def counterexample(axes: Axes, record: Record) -> list[Row]:
    """The cosine that Thm 3.4 says never falls, after LP of several spans."""
    found, panel = record["metrics"]["counterexample"], "counter-example"
    rows, looks = [], []
    for curve, style in zip(found, cycle(SERIES), strict=False):
        looks.append(Look(f"LP until $s$ = {curve['lp_span']:g}", style.color, "", style.linestyle))
        rows += curve_rows(record, panel, looks[-1], curve["s"], curve["cosine"])
    axes.set(xlabel=r"$s = \int L\, dt$ of FFT", ylabel=r"$\cos(w, \bar{x})$")
    axes.set_title("Thm 3.4, counter-example")
    draw_series(axes, rows, looks)
    low, high = axes.get_ylim()
    axes.set_ylim(bottom=low - 0.4 * (high - low))
    axes.legend(loc="lower left", labelspacing=0.2)
    return rows
