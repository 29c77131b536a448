"""Every figure and table: its command writes all files, of all records that it is given."""

import json
import re

import numpy as np
import pytest
from block_worlds import sample_shown, samples_of, shown, worlds_of
from figure_samples import (
    FIGURE_FILES,
    TABLE_FILES,
    csv_rows,
    cut_off,
    drawn,
    show_words,
    smallest_text,
)

from dpatlas.base.records import RunsFields
from dpatlas.errors import InputError
from dpatlas_workflow.config.products import all_products, products_of
from dpatlas_workflow.registry import all_blocks
from dpatlas_workflow.show import make

FIGURES = [name for name, (product, _) in all_products().items() if product.kind == "figure"]
SMALLEST = 6
# Figures of exactly one record of every kind that they show.
OF_ONE_RECORD = [
    "sgld_privacy_loss",
    "sgld_counterexample",
    "sgld_utility",
    "maxinf_coefficients",
    "maxinf_kappa",
    "lpfft_theory",
    "lpfft_distortion",
    "lpfft_sensitivity",
    "lpfft_imbalance",
]
# Backbones trained on one set of public images share the rows of one of them.
SHARED_ROWS = {"pretrain_samples"}


@pytest.mark.slow
@pytest.mark.parametrize("name", all_products())
def test_its_command_writes_all_files_and_names_the_tier_and_every_record(name, tmp_path):
    records, settings = samples_of(name)
    assert make.main(show_words(name, records, settings, tmp_path, "my-tier")) == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    kinds, text = (FIGURE_FILES, "svg") if name in FIGURES else (TABLE_FILES, "md")
    assert set(made) == {f"{name}.{kind}" for kind in kinds}
    assert b"tier my-tier" in made[f"{name}.{text}"]
    rows = csv_rows(made[f"{name}.csv"])
    assert rows and all(row["tier"] == "my-tier" for row in rows)
    lineage = json.loads((tmp_path / "lineage" / f"{name}.json").read_text())
    behind = {run_id for row in rows for run_id in row["runs"].split(";") if run_id}
    assert behind <= set(lineage["records"]) == {record.id for record in records}
    assert name in SHARED_ROWS or behind == set(lineage["records"])


@pytest.mark.parametrize("name", all_products())
def test_conditions_may_have_different_numbers_of_runs(name):
    """As `decide` makes them: it gives more runs to some conditions alone."""
    records, _ = samples_of(name)
    repeated = [
        each for each in records if isinstance(each.spec, RunsFields) and each.spec.runs > 1
    ]
    fewer = [each.cut(each.spec.runs - 1) if each in repeated[-1:] else each for each in records]
    if repeated:
        assert shown(name, fewer).rows


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_can_be_read_and_says_what_its_axes_are(name):
    figure = drawn(sample_shown(name))
    assert smallest_text(figure) >= SMALLEST and cut_off(figure) == []
    panels = [axes for axes in figure.axes if axes.axison]
    for axes in panels:
        for name in ("x", "y"):
            assert any(_says(other, name) for other in panels if _in_line(axes, other, name)), axes


def _says(axes, name):
    """Whether an axis has a label, or categories in words for its ticks."""
    ticks = [tick.get_text() for tick in getattr(axes, f"get_{name}ticklabels")()]
    words = any(re.search("[A-Za-z]{2}", tick.replace("mathdefault", "")) for tick in ticks)
    return words or getattr(axes, f"get_{name}label")()


def _in_line(axes, other, name):
    """Whether two panels are the same, or above one another (x) or side by side (y)."""
    ends = [getattr(each.get_position(), f"interval{name}") for each in (axes, other)]
    return np.allclose(*ends, atol=0.01)


@pytest.mark.parametrize("block", all_blocks().values(), ids=lambda block: block.key)
def test_there_are_records_for_every_product_and_no_other(block):
    products = {product.name for product in products_of(block)}
    assert set(worlds_of(block.key).SHOWN) == products


@pytest.mark.parametrize("name", OF_ONE_RECORD)
def test_a_figure_of_one_record_of_a_kind_refuses_two_and_none(name):
    records, _ = samples_of(name)
    kinds = {each.kind for each in records}
    products = worlds_of(all_products()[name][1].key).SHOWN
    others = [each for product in products for each in samples_of(product)[0]]
    for record in records:
        with pytest.raises(InputError, match=f"2 of kind {record.kind}"):
            shown(name, [*records, record])
        left = [each for each in records if each is not record]
        left += [each for each in others if each.kind not in kinds][:1]
        with pytest.raises(InputError, match=f"0 of kind {record.kind}"):
            shown(name, left)
