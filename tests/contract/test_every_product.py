"""Every figure and table: its command writes all files, of all records that it is given."""

import importlib
import json
import re

import numpy as np
import pytest
from block_worlds import worlds_of
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

PRODUCTS = [
    pytest.param(block, product, id=product.name) for product, block in all_products().values()
]
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
@pytest.mark.parametrize(("block", "product"), PRODUCTS)
def test_its_command_writes_all_files_and_names_the_tier_and_every_record(block, product, tmp_path):
    records, settings = worlds_of(block.key).SHOWN[product.name]()
    words = show_words(product.name, records, settings, tmp_path, "my-tier")
    assert make.main(words) == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    is_figure = product.kind == "figure"
    kinds = FIGURE_FILES if is_figure else TABLE_FILES
    assert set(made) == {f"{product.name}.{kind}" for kind in kinds}
    assert b"tier my-tier" in made[f"{product.name}.{'svg' if is_figure else 'md'}"]
    rows = csv_rows(made[f"{product.name}.csv"])
    assert rows and all(row["tier"] == "my-tier" for row in rows)
    lineage = json.loads((tmp_path / "lineage" / f"{product.name}.json").read_text())
    behind = {run_id for row in rows for run_id in row["runs"].split(";") if run_id}
    assert behind <= set(lineage["records"]) == {record.id for record in records}
    assert product.name in SHARED_ROWS or behind == set(lineage["records"])


@pytest.mark.parametrize(("block", "product"), PRODUCTS)
def test_conditions_may_have_different_numbers_of_runs(block, product):
    """As `decide` makes them: it gives more runs to some conditions alone."""
    records, settings = worlds_of(block.key).SHOWN[product.name]()
    repeated = [
        each for each in records if isinstance(each.spec, RunsFields) and each.spec.runs > 1
    ]
    fewer = [each.cut(each.spec.runs - 1) if each in repeated[-1:] else each for each in records]
    module = importlib.import_module(block.product_module(product.name))
    if repeated:
        assert getattr(module, product.name)(fewer, settings).rows


@pytest.mark.parametrize(
    ("block", "product"), [each for each in PRODUCTS if each.values[1].kind == "figure"]
)
def test_a_figure_can_be_read_and_says_what_its_axes_are(block, product):
    records, settings = worlds_of(block.key).SHOWN[product.name]()
    module = importlib.import_module(block.product_module(product.name))
    figure = drawn(getattr(module, product.name)(records, settings))
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
    _, block = all_products()[name]
    shown = worlds_of(block.key).SHOWN
    records, settings = shown[name]()
    make_it = getattr(importlib.import_module(block.product_module(name)), name)
    kinds = {each.kind for each in records}
    others = [each for make_of in shown.values() for each in make_of()[0]]
    for record in records:
        with pytest.raises(InputError, match=f"2 of kind {record.kind}"):
            make_it([*records, record], settings)
        left = [each for each in records if each is not record]
        left += [each for each in others if each.kind not in kinds][:1]
        with pytest.raises(InputError, match=f"0 of kind {record.kind}"):
            make_it(left, settings)
