"""An edit re-runs what it belongs to: no kind of job and no figure reaches another of its block."""

import pytest

from dpatlas.base.digest import reachable
from dpatlas_workflow.config.products import products_of
from dpatlas_workflow.registry import all_blocks

BLOCKS = pytest.mark.parametrize("block", all_blocks().values(), ids=lambda block: block.key)


@BLOCKS
def test_a_kind_of_job_reaches_neither_another_kind_nor_what_is_shown_planned_or_set(block):
    parts = ("products", "cost", "settings", "claims", "figures")
    others = {f"{block.package}.{part}" for part in parts}
    for kind in block.kinds:
        modules = {block.job_module(kind), f"{block.package}.records.{kind}"}
        reached = set(reachable(block.job_module(kind)))
        assert modules <= reached
        of_others = {
            module
            for other in block.kinds
            # A tuning trains the arms of its kind.
            if other != kind.removesuffix("_tuning")
            for module in (block.job_module(other), f"{block.package}.records.{other}")
        } - modules
        assert not reached & (of_others | others), kind


@BLOCKS
def test_a_figure_reaches_no_other_figure_and_no_job(block):
    products = products_of(block)
    modules = {block.product_module(product.name) for product in products}
    jobs = {block.job_module(kind) for kind in block.kinds}
    for module in modules:
        reached = set(reachable(module))
        assert module in reached
        assert not reached & (modules - {module} | jobs), module
