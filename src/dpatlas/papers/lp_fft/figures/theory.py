"""Figures of lp_fft's theory beside simulation: losses, distortion, layers of a linear net.

`lpfft_theory` needs exactly one record each of the kinds `dynamics` and `distortion`,
`lpfft_sensitivity` and `lpfft_imbalance` one of the kind `sensitivity` and `imbalance`; InputError
otherwise. Settings are not used.
"""

import math
from collections.abc import Callable, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpatlas.papers.lp_fft.figures.theory_panels import (
    after_probing,
    claimed_distortion,
    counterexample,
    fft_bracket,
    head_norm,
    loss_ratios,
    lp_bracket,
    two_records,
    violations,
)
from dpatlas.papers.lp_fft.figures.theory_series import (
    COLUMNS,
    EXACT,
    PRINTED,
    Record,
    column_rows,
    curve_rows,
    draw_guide,
    draw_series,
    label_few,
    mean_rows,
)
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import label_ticks, select
from dpatlas.show.series import BLUE, GREEN, PINK, RED, SERIES, only

NOISES = {
    "uniform": Look("uniform noise", BLUE, "o", "-"),
    "layer-wise": Look("layer-wise noise", RED, "s", "--"),
}
LAYERS = {
    "head": Look("head", BLUE, "o", "-"),
    "features": Look("features", RED, "s", "--"),
}
READINGS = {
    ("record", "variance"): Look(r"records, variance $h/\sqrt{d}$", BLUE, "o", "-"),
    ("record", "deviation"): Look(r"records, deviation $h/\sqrt{d}$", RED, "s", "--"),
    ("ball", "variance"): Look(r"unit ball, variance $h/\sqrt{d}$", GREEN, "^", "-."),
    ("ball", "deviation"): Look(r"unit ball, deviation $h/\sqrt{d}$", PINK, "D", ":"),
}


def lpfft_theory(records: Records, settings: Settings) -> ShownFigure:
    """Eq. 161, Thms 4.2 to 4.5 and Thms 3.3 and 3.4 beside simulation, in nine panels."""
    dynamics, distortion = only(records, "dynamics"), only(records, "distortion")
    figure = Figure(figsize=(DOUBLE_COLUMN, 6.9))
    panels: Sequence[tuple[Callable[[Axes, Record], list[Row]], Record]] = (
        (head_norm, dynamics),
        (loss_ratios, dynamics),
        (violations, dynamics),
        (lp_bracket, dynamics),
        (fft_bracket, dynamics),
        (claimed_distortion, distortion),
        (two_records, distortion),
        (after_probing, distortion),
        (counterexample, distortion),
    )
    rows = []
    for axes, (draw, record) in zip(figure.subplots(3, 3).flat, panels, strict=True):
        rows += draw(axes, record)
    return ShownFigure(figure, COLUMNS, rows, _theory_notes(dynamics, distortion))


def _theory_notes(dynamics: Record, distortion: Record) -> list[str]:
    relu, probing = dynamics["spec"]["relu"], dynamics["spec"]["probing"]
    tuned = dynamics["spec"]["fine_tuning"]
    clusters, two = distortion["spec"]["clusters"], distortion["spec"]["two_records"]
    after = distortion["spec"]["after_probing"]
    return [
        "bars: 95% intervals",
        f"Eq. 161 and Thm 4.4: h = {probing['hidden']}, beta_h = "
        f"{probing['head_variance']:g}, sigma^2 = {probing['sigma2']:g}, {probing['paths']} paths",
        f"Thm 4.5: beta_h {tuned['head_excess']:g} times what Assumption E.7 asks for, sigma^2 "
        f"{tuned['noise_share']:g} of what it allows, {tuned['paths']} paths",
        "brackets: a case is a draw of "
        f"data ({relu['records']} records within {relu['angle']:g} degrees) and network "
        f"({relu['hidden']} features) and a sigma, outside: at some time, for either class, the "
        "diffusion by 5 standard errors; without a bar: none; noise sigma dQ; an aligned head has "
        "the signs of its classes",
        "Thm 3.3: log of the two records' ratio over spread "
        f"{math.log(two['ratio']) / two['spread']:.3g}; clusters of Thm 3.3: "
        f"{clusters['records']} records within {clusters['angle']:g} degrees; Thm 3.4: "
        f"{after['hidden']} features within {after['feature_angle']:g} degrees, LP until s = "
        f"{after['lp_span']:g}; s is the integral of the loss over time, of which gradient flow's "
        "states are functions",
    ]


def lpfft_sensitivity(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 9: sensitivities of both layers, their ratio against d, and its drift in DP-GD."""
    record = only(records, "sensitivity")
    metrics = record["metrics"]
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.7))
    sizes, start, drift = figure.subplots(1, 3)
    rows = [
        *_layer_sizes(sizes, record),
        *_start_ratios(start, record),
        *_ratio_drift(drift, record),
    ]
    fields = record["spec"]["start"]
    seeds, moving = metrics["start"][0]["seeds"], record["spec"]["drift"]
    notes = [
        f"h = {fields['hidden']}, n = {fields['records_per_input']} d records with X^T X = I, "
        f"||Y|| = 1, {seeds} heads and features; records: largest gradient norm over the records; "
        "unit ball: over all records of norm and label at most 1; Prop. E.10: a ratio above 1 that "
        "grows like sqrt(d) (thin line: its slope); bars: 95% intervals; right: d = "
        f"{moving['d']}, records, {moving['reading']} h/sqrt(d), steps of {moving['step']:g}, "
        f"sigma^2 = {moving['sigma2']:g}, {moving['seeds']} paths",
    ]
    return ShownFigure(figure, COLUMNS, rows, notes)


def _layer_sizes(axes: Axes, record: Record) -> list[Row]:
    """Largest gradient norm of a record in either layer, h / sqrt(d) being the variance."""
    found = select(record["metrics"]["start"], reading="variance")
    rows = []
    for name, look in LAYERS.items():
        value = f"record_{name}"
        rows += column_rows(record, "sensitivity", look, found, "d", value)
    axes.set(xscale="log", yscale="log", xlabel="inputs $d$", title="sensitivity of a layer")
    axes.set_ylabel("largest gradient norm of a record")
    draw_series(axes, rows, LAYERS.values())
    label_few(axes)
    label_ticks(axes, {row["x"] for row in rows})
    axes.legend()
    return rows


def _start_ratios(axes: Axes, record: Record) -> list[Row]:
    """Head over features before training, by definition of sensitivity and reading of E.10."""
    rows = []
    for (kind, reading), look in READINGS.items():
        found = select(record["metrics"]["start"], reading=reading)
        rows += column_rows(record, "ratio at the start", look, found, "d", f"{kind}_ratio")
    axes.set(xscale="log", yscale="log", xlabel="inputs $d$", title="ratio before training")
    axes.set_ylabel("head over features")
    draw_series(axes, rows, READINGS.values())
    draw_guide(axes, 1.0)
    at = sorted({row["x"] for row in rows})
    low = min(row["value"] for row in rows)
    axes.plot(at, [low * math.sqrt(d / at[0]) for d in at], color=MUTED, linewidth=THIN)
    axes.set_ylim(low / 1.3, 6)
    label_few(axes)
    label_ticks(axes, at)
    axes.legend(loc="upper left", labelspacing=0.2, handlelength=1.8)
    return rows


def _ratio_drift(axes: Axes, record: Record) -> list[Row]:
    """The ratio during noisy gradient descent."""
    rows = []
    for found in record["metrics"]["drift"]:
        look, series = NOISES[found["noise"]], (found["steps"], found["ratio"], found["error"])
        rows += mean_rows(record, "ratio in DP-GD", look, *series)
    axes.set(xlabel="steps of DP-GD", title="drift of the ratio", ylabel="head over features")
    draw_series(axes, rows, NOISES.values())
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left")
    return rows


def lpfft_imbalance(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 10: the gap of Jensen's inequality, and the drift of the mean eigenvalue."""
    record = only(records, "imbalance")
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.8))
    left, right = figure.subplots(1, 2)
    rows = [*_jensen(left, record), *_eigenvalue_drift(right, record)]
    gap, drift = record["spec"]["gap"], record["spec"]["drift"]
    notes = [
        f"h = {gap['hidden']}, d = {gap['inputs']}; left: u = max(0, -least eigenvalue of v v^T - "
        f"B B^T), DP-SGD on {gap['records']} records at once, clip {gap['max_grad_norm']:g}, "
        f"learning rate {gap['lr']:g} on the mean gradient, {gap['paths']} paths; thin line: the "
        f"1% of Conjecture E.22; right: Langevin diffusion, sigma^2 = {drift['sigma2']:g}, "
        f"{drift['paths']} paths; under layer-wise noise printed and exact are both zero; bars: "
        "95% intervals",
    ]
    return ShownFigure(figure, COLUMNS, rows, notes)


def _jensen(axes: Axes, record: Record) -> list[Row]:
    rows, looks = [], []
    for found, style in zip(record["metrics"]["gap"], cycle(SERIES), strict=False):
        looks.append(
            Look(rf"$\sigma$ = {found['sigma']:g}", style.color, style.marker, style.linestyle)
        )
        percent = [[100 * value for value in found[name]] for name in ("gap", "error")]
        rows += mean_rows(record, "Jensen gap in percent", looks[-1], found["steps"], *percent)
    axes.set(xlabel="steps of DP-SGD")
    axes.set_ylabel(r"$\mathbb{E}u / (\mathbb{E}\sqrt{u})^2 - 1$  (%)")
    axes.set_title("Jensen gap of the least eigenvalue")
    draw_series(axes, rows, looks)
    axes.set_ylim(bottom=0)
    draw_guide(axes, 1.0)
    axes.legend(loc="lower right")
    return rows


def _eigenvalue_drift(axes: Axes, record: Record) -> list[Row]:
    rows, panel = [], "change of the mean eigenvalue"
    shown = []
    for found in record["metrics"]["drift"]:
        base = NOISES[found["noise"]]
        points = Look(base.label, base.color, base.marker, "")
        rows += mean_rows(record, panel, points, found["times"], found["change"], found["error"])
        shown.append(points)
        if found["noise"] == "uniform":
            for look, name in ((PRINTED, "paper"), (EXACT, "exact")):
                line = Look(f"{look.label}, uniform", look.color, "", look.linestyle)
                rows += curve_rows(record, panel, line, found["times"], found[name])
                shown.append(line)
    axes.set(xlabel="time $t$", ylabel="change of the mean eigenvalue")
    axes.set_title(r"imbalance $v v^T - B B^T$, Eq. 125")
    draw_series(axes, rows, shown)
    axes.legend(loc="lower left")
    return rows
