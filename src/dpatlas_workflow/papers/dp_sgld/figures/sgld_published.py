"""What dp_sgld published, what its settings guarantee, and what our runs reach with such noise."""

from itertools import product
from typing import Any

from dpatlas.errors import InputError
from dpatlas.formulas.dp_sgld.published import COUNTS, PUBLISHED_RUNS, PublishedRun
from dpatlas_workflow.papers.dp_sgld.figures.arms import seen_in
from dpatlas_workflow.records import Record
from dpatlas_workflow.rows import arms
from dpatlas_workflow.show.output import ShownTable
from dpatlas_workflow.show.rows import Records, Row, Settings, of_kind, only, over_runs, where
from dpatlas_workflow.show.tables import Cell, Math, Measured, Part

SETTINGS = (
    "part",
    "table",
    "dataset",
    "backbone",
    "n",
    "eta",
    "lambda",
    "max_grad_norm",
    "sigma",
    "epochs",
    "steps",
    "delta",
    "printed_epsilon",
    "claimed_epochs",
    "claimed_steps",
    "noise_multiplier",
    "guaranteed_add_remove",
    "guaranteed_replace_one",
    "dp_sgd_noise_multiplier",
    "dp_sgd_pld",
    "dp_sgd_rdp",
)
# Columns of accuracies by the method and comparison of their arm.
ACCURACIES = {
    (method, comparison): f"{method}_{comparison}".replace("-", "_")
    for method in ("dp-sgld", "dp-sgd")
    for comparison in ("published", "guaranteed")
}
REACHED = (
    "stands_for",
    "features",
    "schedule",
    "epsilon",
    *(
        f"{name}{part}"
        for name in ACCURACIES.values()
        for part in ("", "_standard_error", "_guaranteed_epsilon")
    ),
    "accuracy_runs",
)
PUBLISHED: dict[str, Cell] = {
    "table": "table",
    "dataset": "data set",
    "backbone": "backbone",
    "eta": "eta",
    "lambda": Math(r"\lambda"),
    "max_grad_norm": "L",
    "sigma": Math(r"\sigma"),
    "epochs": "epochs",
    "delta": Math(r"\delta"),
    "printed_epsilon": "eps, printed",
    "claimed_epochs": "Thm 3.2, K = epochs",
    "claimed_steps": "Thm 3.2, K = steps",
    "guaranteed_add_remove": "all iterates, Poisson, add/remove, PLD",
    "guaranteed_replace_one": "all iterates, without replacement, replace one",
}
BASELINE: dict[str, Cell] = {
    "dataset": "data set",
    "epochs": "epochs",
    "delta": "delta",
    "dp_sgd_noise_multiplier": "noise multiplier",
    "dp_sgd_rdp": "eps, RDP",
    "dp_sgd_pld": "eps, PLD",
}
OURS: dict[str, Cell] = {
    "dataset": "data set",
    "stands_for": "in the place of",
    "features": "features",
    "schedule": "steps",
    "epsilon": "eps",
    "dp_sgld_published": "DP-SGLD, published noise",
    "dp_sgld_published_guaranteed_epsilon": "which guarantees eps",
    "dp_sgd_published": "DP-SGD, published",
    "dp_sgld_guaranteed": "DP-SGLD, eps guaranteed",
    "dp_sgd_guaranteed": "DP-SGD, eps guaranteed",
}


def sgld_published(records: Records, settings: Settings) -> ShownTable:
    """The published settings, what Thm 3.2 and ordinary accounting give, and our accuracy."""
    accounting = only(records, "privacy_loss")
    published = [
        published_row(run, accounted, accounting.id)
        for run, accounted in zip(PUBLISHED_RUNS, accounting.tables["published"], strict=True)
    ]
    reached = [row for record in of_kind(records, "accuracy") for row in reached_rows(record)]
    settings_part = Part.of(
        "DP-SGLD as published, batch 128: the printed eps is recovered with K = number of epochs; "
        "L and beta as in the authors' code; accounted at the first, largest step",
        PUBLISHED,
        [
            {**row, "eta": "decreasing" if row["eta"] is None else f"{row['eta']:g}"}
            for row in published
        ],
    )
    # DP-SGD's settings, once for every data set.
    once = {(row["dataset"], row["epochs"]): row for row in published}.values()
    baseline = "DP-SGD as published: Poisson batches of 128, add/remove"
    parts = [settings_part, Part.of(baseline, BASELINE, once)]
    if reached:
        caption = (
            "Our runs: test accuracy, mean ± standard error; at the published noise (Thm 3.2 with "
            "K = epochs; DP-SGD: add/remove) and at equal guaranteed eps (replace one)"
        )
        parts.append(Part.of(caption, OURS, map(_with_errors, reached)))
    return ShownTable((*SETTINGS, *REACHED), [*published, *reached], parts)


def published_row(run: PublishedRun, accounted: Row, record: str) -> Row:
    """One DP-SGLD row of Tables 1 and 2; InputError where the record is of another row."""
    names = ("table", "dataset", "backbone", "steps")
    if any(accounted[name] != getattr(run, name) for name in names):
        raise InputError(record, "other published settings", "a record of this code")
    claims = {f"claimed_{count}": run.claimed_epsilon(count) for count in COUNTS}
    return {
        "part": "published",
        **{name: getattr(run, name) for name in names},
        "n": run.n,
        "eta": run.eta,
        "lambda": run.lam,
        "max_grad_norm": run.L,
        "sigma": run.sigma,
        "epochs": run.epochs,
        "delta": run.delta,
        "printed_epsilon": run.printed_epsilon,
        **claims,
        "noise_multiplier": accounted["noise_multiplier"],
        "guaranteed_add_remove": accounted["add_remove"],
        "guaranteed_replace_one": accounted["replace_one"],
        **{name: value for name, value in accounted.items() if name.startswith("dp_sgd")},
        "runs": [record],
    }


def reached_rows(record: Record[Any]) -> list[Row]:
    """Test accuracy of an `accuracy` record, a row per epsilon and schedule.

    Two classes stand for Pneumonia, more for CIFAR-10.
    """
    fields, facts, compared = record.spec, record.facts, arms(record)
    schedules = dict.fromkeys(arm["schedule"] for arm in where(compared, method="dp-sgld"))
    rows = []
    for schedule, epsilon in product(schedules, fields.epsilons):
        row: Row = {
            "part": "ours",
            "dataset": fields.data.name,
            "stands_for": "Pneumonia" if facts["classes"] == 2 else "CIFAR10",
            "features": seen_in(record),
            "schedule": schedule,
            "epsilon": epsilon,
            "n": facts["n_train"],
            "delta": fields.delta,
            "accuracy_runs": fields.runs,
            "runs": list(record.ids),
        }
        for arm in compared:
            name = ACCURACIES.get((arm["method"], arm["comparison"]))
            # DP-SGD has no schedule: its accuracy is in the rows of both.
            if name and arm["epsilon"] == epsilon and arm["schedule"] in (schedule, None):
                over = over_runs(arm["accuracy"])
                row |= {
                    name: over["value"],
                    f"{name}_standard_error": over["standard_error"],
                    f"{name}_guaranteed_epsilon": arm["guaranteed_epsilon"],
                }
        rows.append(row)
    return rows


def _with_errors(row: Row) -> Row:
    """A row for people: the accuracies that it has, with their errors."""
    known = [name for name in ACCURACIES.values() if row.get(name) is not None]
    return row | {name: Measured(row[name], row[f"{name}_standard_error"]) for name in known}
