"""Records of rows: blocks that add up, first runs alone, and columns for figures and claims."""

import pytest
from kl_sample_records import linearized_record, training_record

from dpatlas.base.records import rows_of
from dpatlas.errors import InputError
from dpatlas_workflow.records import noting
from dpatlas_workflow.rows import columns


def test_rows_go_through_all_points_of_the_axes_the_last_fastest():
    rows = rows_of({"run": [4, 5], "step": [1, 2, 3]}, kl=[[1, 2, 3], [4, 5, 6]])
    assert rows[0] == {"run": 4, "step": 1, "kl": 1} and rows[-1] == {"run": 5, "step": 3, "kl": 6}
    assert [row["kl"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows_of({"run": []}, kl=[]) == []


def test_columns_have_fields_of_the_spec_and_facts_and_a_row_s_own_come_first():
    records = [linearized_record(init) for init in ("lecun", "he")]
    data = columns(records, "widths")
    assert set(data.width) == {4, 8, 16} and records[0].spec.width == 8
    assert set(data["data.name"]) == {"digits"} and set(data.sphere_records) == {16}
    assert list(data.record.unique()) == [record.id for record in records]
    assert set(columns(records, "widths", init="he", width=[4, 16]).width) == {4, 16}
    assert columns(records, "widths", width=5).empty
    with pytest.raises(InputError, match="column: found depht; allowed: width, B"):
        columns(records, "widths", depht=2)
    with pytest.raises(InputError, match="table: found heights; allowed: one of depths, shares"):
        columns(records, "heights")


def test_records_that_a_field_of_their_spec_leaves_out_are_not_read():
    records = [training_record(init) for init in ("lecun", "he")]
    with noting() as ids:
        assert set(columns(records, "curves", init="he").init) == {"he"}
    assert ids == {records[1].id}
