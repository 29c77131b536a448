"""What tables and figures of dp_sgld show of records other than the samples of test_shown.py."""

from dataclasses import replace

import pytest
from block_worlds import worlds_of
from figure_samples import maker, select, shown_rows

from dpatlas.errors import InputError
from dpatlas_workflow.papers.dp_sgld.figures.sgld_along_n import sgld_along_n
from dpatlas_workflow.papers.dp_sgld.printed import TABLES
from dpatlas_workflow.show.panel import PRINTED

worlds = worlds_of("dp_sgld")


def of_set(record, name, **facts):
    fields = record.spec.data.model_copy(update={"name": name})
    spec = record.spec.model_copy(update={"data": fields})
    return replace(record, spec=spec, facts={**record.facts, **facts})


def test_rows_of_the_paper_s_protocol_stand_beside_those_of_table_2():
    records = [worlds.accuracy_record(0), worlds.protocol_record(4000)]
    shown = maker("sgld_accuracy_decreasing")(records, {})
    pairs = list(TABLES["sgld_accuracy_decreasing"](shown_rows(shown)))
    assert {pair.setting for pair in pairs} == {"digits, strokes-s, n = 4000"}
    assert {pair.what: (pair.printed, pair.ours.value) for pair in pairs} == {
        "CIFAR10, resnet18, DP-SGLD: accuracy, %": (70.1, pytest.approx(89.5, abs=0.1)),
        "CIFAR10, resnet18, DP-SGD: accuracy, %": (68.1, pytest.approx(88.5, abs=0.1)),
        "CIFAR10, resnet18, No DP: accuracy, %": (70.2, pytest.approx(90.0, abs=0.1)),
    }


def test_only_a_set_with_several_n_is_drawn_along_n_and_the_others_stand_side_by_side():
    several = [worlds.protocol_record(n) for n in worlds.LEADS]
    alone = [of_set(worlds.protocol_record(4000), name) for name in ("mnist", "cifar10")]
    above, below, *_, leads = sgld_along_n([*several, *alone], {}).grids[0].panels
    assert [panel.x.ticks for panel in (*above, *below)] == [sorted(worlds.LEADS)] * 4
    for panel in leads:
        assert [text.partition(",")[0] for text in panel.x.ticks.values()] == ["mnist", "cifar10"]
        # No line leads from one data set to another.
        assert panel.series and not any(each.look.linestyle for each in panel.series)


def test_a_lead_outside_the_axis_has_an_arrow_and_its_number():
    records = [worlds.protocol_record(n) for n in (4000, 16_000)]
    of = {"method": "dp-sgld", "reading": "paper", "schedule": "constant"}
    worlds.set_accuracy(0.2, "protocol", **of)({"protocol": records})
    shown = sgld_along_n(records, {})
    (lead,) = select(shown.rows, **of, source="ours less DP-SGD", n_train=4000)
    below = shown.grids[0].panels[1][0]
    (words,) = [words for words in below.words if words.text.startswith("↓")]
    assert words.text == f"↓ {100 * lead['value']:.3g}".replace("-", "\N{MINUS SIGN}")
    assert words.at[0] == 4000 and below.y.ends[0] < words.at[1] < 0


def test_printed_accuracies_stand_beside_ours_on_the_paper_s_data_and_backbone_alone():
    def shown(data, classes, backbone):
        record = worlds.protocol_record(4000)
        used = {**record.facts["backbone"], "id": f"{backbone}-01234567"}
        return sgld_along_n([of_set(record, data, classes=classes, backbone=used)], {})

    theirs = shown("cifar10", 10, "cifar100-resnet18")
    assert {
        row["method"]: (row["n_train"], row["epsilon"], row["value"])
        for row in select(theirs.rows, source="printed")
    } == {
        "dp-sgld": (50_000, 1.0, 0.703),
        "dp-sgd": (50_000, 1.0, 0.68),
        "no-dp": (50_000, None, 0.707),
    }
    paper, code = (
        {y for each in panel.series if each.look.label == PRINTED.label for y in each.y}
        for panel in theirs.panels[:2]
    )
    assert paper == {0.703, 0.68, 0.707} and not code
    for other in (("cifar10", 5, "cifar100-resnet18"), ("cifar10", 10, "leaves-t")):
        assert not select(shown(*other).rows, source="printed")


def test_one_problem_in_two_records_is_one_row_of_constants():
    pair = [worlds.accuracy_record(number, "constant") for number in (0, 1)]
    assert len(select(maker("sgld_constants")(pair, {}).rows, part="ours")) == 1


def test_accounting_of_other_published_rows_is_refused():
    record = worlds.growing_losses_record()
    record.tables["published"][0]["steps"] = 1
    with pytest.raises(InputError, match="other published settings"):
        maker("sgld_published")([record], {})
