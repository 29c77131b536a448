"""Every figure and table of the papers: what it refuses, and how blocks of runs are shown."""

from dataclasses import replace

import pytest
from block_worlds import worlds_of
from figure_samples import blocks_of, maker, names_of

from dpatlas.base.records import RunsFields
from dpatlas.errors import InputError
from dpatlas_workflow.records import joined
from dpatlas_workflow.registry import all_papers

PRODUCTS = [
    (key, name)
    for key in all_papers()
    for kind in ("figure", "table")
    for name in names_of(key, kind)
]
every_product = pytest.mark.parametrize(("key", "name"), PRODUCTS)


@every_product
def test_records_of_other_kinds_alone_are_refused(key, name):
    other = ("dp_sgld", "sgld_utility") if key != "dp_sgld" else ("kl_privacy", "kl_vs_depth")
    others, _ = worlds_of(other[0]).SHOWN[other[1]]()
    with pytest.raises(InputError, match="--records"):
        maker(name)(others, worlds_of(key).SHOWN[name]()[1])


@every_product
def test_blocks_of_runs_are_shown_as_one_condition(key, name):
    records, settings = worlds_of(key).SHOWN[name]()
    repeated = [each for each in records if isinstance(each.spec, RunsFields)]
    apart = [
        replace(joined(blocks_of(each, 1))[0], data=each.data) if each in repeated else each
        for each in records
    ]
    shown, whole = (maker(name)(each, settings).rows for each in (apart, records))
    assert [{**row, "runs": 0} for row in shown] == [{**row, "runs": 0} for row in whole]
    named = {block for row in shown for block in row["runs"]}
    assert named == {block for each in apart for block in each.ids}
