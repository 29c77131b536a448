"""Figure maxinf_coefficients: the coefficients of Prop. 1 beside those of pure privacy."""

from typing import Any

from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import columns
from dpatlas_workflow.show.look import RED, Look, ramp
from dpatlas_workflow.show.panel import Axis, Panel, PanelGrid, ShownFigure, printed, series, spaced
from dpatlas_workflow.show.rows import Records, Row, Settings, only, where

PURE = Look("Dwork et al., pure privacy", RED)
LEMMA_6 = (0.25, 2.0)
OURS, PRINTED = "ours", "printed"
# The value of R in the proof of Lemma 6, Eq. 92.
PRINTED_RATIO = {"alpha": 3.0, "beta": 0.5, "value": 1.95}
BETA = Axis(r"$\beta$", log=True)
# By panel: its title, its axis and lines across it.
PANELS: dict[str, tuple[str, Axis, tuple[float, ...]]] = {
    "leading": (r"coefficient of $m s^2 / \sigma^2$", Axis("$c_1$", ends=(0, None)), ()),
    "root": (r"coefficient of $\sqrt{m}\, s / \sigma$", Axis("$c_2$", ends=(0, None)), ()),
    "ratio": (
        "Prop. 1's $c_1$ over Dwork et al.'s",
        Axis("$R$", ends=(0, 1.05 * LEMMA_6[1])),
        LEMMA_6,
    ),
}


def maxinf_coefficients(records: Records, settings: Settings) -> ShownFigure:
    """Fig. 1: both coefficients against beta beside those of pure privacy, and Lemma 6's ratio.

    Raises InputError unless there is exactly one record of kind `coefficients`.
    """
    record = only(records, "coefficients")
    rows = coefficient_rows(record)
    if PRINTED_RATIO["alpha"] in record.spec.alphas:
        theirs = {"panel": "ratio", "source": PRINTED, **PRINTED_RATIO, "runs": [record.id]}
        rows.append(theirs)
    alphas = sorted(record.spec.alphas)
    looks: dict[Any, Look] = dict(
        zip(alphas, ramp([rf"$\alpha$ = {alpha:g}" for alpha in alphas]), strict=True)
    )
    # Rows of pure privacy have no alpha.
    looks[None] = PURE
    panels = []
    for name, (title, quantity, limits) in PANELS.items():
        # Curves lie close together; markers at different points keep them apart.
        drawn = spaced(series(where(rows, panel=name, source=OURS), "beta", looks, "alpha"))
        drawn += printed(where(rows, panel=name, source=PRINTED), "beta", looks, "alpha")
        panels.append(Panel(title, BETA, quantity, drawn, across=limits))
    notes = [
        "pure privacy: delta = beta, and the epsilon for which the Gaussian mechanism is (epsilon, "
        "delta)-private; no pure mechanism has this noise, so only the sizes of coefficients can "
        "be compared; thin lines: Lemma 6, R between 1/4 and 2 for alpha up to 3 and beta up to 1/2"
    ]
    return ShownFigure(
        [PanelGrid([panels], 2.7)], ("panel", "source", "alpha", "beta", "value"), rows, notes
    )


def coefficient_rows(record: Record[Any]) -> list[Row]:
    """The points of every panel; those of pure privacy, which do not depend on alpha, once."""
    rows = []
    data = columns([record])
    data = data.assign(gaussian_ratio=data.gaussian_leading / data.pure_dp_leading)
    for number, (alpha, curve) in enumerate(data.groupby("alpha", sort=False)):
        pure = [] if number else [("pure_dp", None, "leading"), ("pure_dp", None, "root")]
        for of, shown_alpha, panel in (*pure, *(("gaussian", alpha, each) for each in PANELS)):
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
