"""Records of feature_learning whose measures a test makes up; all else follows from the spec."""

from figure_samples import sample_record

from dpatlas.base.records import rows_of
from dpatlas.formulas.feature_learning.single_index import link as link_of
from dpatlas_workflow.papers.feature_learning.jobs.rules import ClipBounds, Rules, link_facts
from dpatlas_workflow.papers.feature_learning.jobs.simulation import MEASURES
from dpatlas_workflow.papers.feature_learning.records.simulation import FeatureSimulationSpec

KEY = "feature_learning"
BASE = {"d": 64, "n": 20_000, "p": 128, "epsilon": 2.0}
LINKS = {"mixed": [-0.5, 1.0, 0.5], "odd": [0.0, -0.5, 0.0, 0.5], "even": [-1.0, 0.0, 1.0]}
SETTINGS = {
    "delta": 1e-5,
    "steps": 100,
    "n_test": 4000,
    "sharing": "split",
    "clip_quantiles": {"first": 0.5, "second": 0.9},
    "penalty_per_neuron": 1e-3,
    "seed": 0,
    "noise_source": "keyed",
}
BOUNDS = ClipBounds(matrix=1.0, direction=1.0, head=1.0)


def simulation(link, axis, points, rows, runs, warnings=(), **changes):
    """A record of `points`; rows: dicts with d, n, p, epsilon, features and measures by run."""
    settings = {**SETTINGS, **changes}
    target = link_of(LINKS[link])
    fields = {
        **{"key": KEY, "kind": "simulation", "link": link, "polynomial": LINKS[link]},
        **{"axis": axis, "points": points, "runs": runs, **settings},
    }
    shared = {name: settings[name] for name in ("delta", "steps", "sharing", "penalty_per_neuron")}
    conditions = [Rules(link=target, bounds=BOUNDS, **point, **shared).facts() for point in points]
    facts = {**link_facts(target), "conditions": conditions, "warnings": list(warnings)}
    by_run = [each for row in rows for each in rows_by_run(row, runs)]
    return sample_record(
        FeatureSimulationSpec(**fields), {**facts, "rows": by_run}, f"{link}-{axis}"
    )


def rows_by_run(row, runs):
    """Rows of a record of a dict with measures by run, None for those that are not taken."""
    shared = {name: row[name] for name in (*BASE, "features")}
    measures = {name: row.get(name) or [None] * runs for name in MEASURES}
    return [{**each, **shared} for each in rows_of({"run": range(runs)}, **measures)]


def change(part, **values):
    """Set fields of a part of a record, which code cannot."""
    vars(part).update(values)
