"""Figure maxinf_coefficients: the coefficients of Prop. 1 beside those of pure privacy."""

from itertools import cycle

from matplotlib.figure import Figure

from dpatlas.papers.max_information.records.coefficients import Metrics, Spec
from dpatlas.records import Record
from dpatlas.show.look import DOUBLE_COLUMN, MUTED, THIN, Look
from dpatlas.show.output import Records, Row, Settings, ShownFigure
from dpatlas.show.panels import columns, legend, select
from dpatlas.show.series import SERIES, handle, only

PURE = Look("Dwork et al., pure privacy", "black", "", "-")
# Without the black one, which stands for pure privacy.
ALPHAS = tuple(look for look in SERIES if look.color != PURE.color)
LEMMA_6 = (0.25, 2.0)
MARKERS = 4
COEFFICIENTS = {
    "leading": r"coefficient of $m s^2 / \sigma^2$",
    "root": r"coefficient of $\sqrt{m}\, s / \sigma$",
    "ratio": r"ratio $R$ of the leading ones",
}


def maxinf_coefficients(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 1: both coefficients against beta beside those of pure privacy, and Lemma 6's ratio.

    Raises InputError unless there is exactly one record of kind `coefficients`.
    """
    record = only(records, "coefficients")
    rows = coefficient_rows(record)
    figure = Figure(figsize=(DOUBLE_COLUMN, 2.7))
    looks = dict(zip(record.metrics.alphas, cycle(ALPHAS), strict=False))
    for (panel, title), axes in zip(COEFFICIENTS.items(), figure.subplots(1, 3), strict=True):
        axes.set(xscale="log", xlabel=r"$\beta$", title=title)
        shown = select(rows, panel=panel)
        for number, (alpha, look) in enumerate([*looks.items(), (None, PURE)]):
            at, value = columns(select(shown, alpha=alpha), "beta", "value")
            # Curves lie close together: their markers at different places.
            every = max(1, len(at) // MARKERS)
            axes.plot(at, value, marker=look.marker, markevery=(number % every, every), **look.line)
        axes.set_ylim(bottom=0)
        if panel == "ratio":
            axes.set_ylim(top=1.05 * LEMMA_6[1])
            for limit in LEMMA_6:
                axes.axhline(limit, color=MUTED, linewidth=THIN, zorder=1)
    entries = [
        handle(Look(rf"$\alpha$ = {alpha:g}", look.color, look.marker, look.linestyle))
        for alpha, look in looks.items()
    ]
    legend(figure, [*entries, handle(PURE)])
    notes = [
        "pure privacy at delta = beta and the epsilon at which the Gaussian mechanism is (epsilon, "
        "delta)-private, which no pure mechanism is: sizes can be compared, guarantees cannot; "
        "thin lines: Lemma 6, R between 1/4 and 2 for alpha up to 3 and beta up to 1/2",
    ]
    return ShownFigure(figure, ("panel", "alpha", "beta", "value"), rows, notes)


def coefficient_rows(record: Record[Spec, Metrics]) -> list[Row]:
    """The points of every panel; pure privacy, which knows no alpha, once."""
    rows = []
    for number, curve in enumerate(record.metrics.curves):
        pure = {"leading": curve.pure_dp_leading, "root": curve.pure_dp_root}
        ours = {
            "leading": curve.gaussian_leading,
            "root": curve.gaussian_root,
            "ratio": [
                value / reference
                for value, reference in zip(
                    curve.gaussian_leading, curve.pure_dp_leading, strict=True
                )
            ],
        }
        for alpha, panels in ((None, {} if number else pure), (curve.alpha, ours)):
            rows += [
                {
                    "panel": panel,
                    "alpha": alpha,
                    "beta": beta,
                    "value": value,
                    "runs": [record.id],
                }
                for panel, values in panels.items()
                for beta, value in zip(curve.beta, values, strict=True)
            ]
    return rows
