"""What panels of all figures share."""

from itertools import pairwise

import pytest
from figure_samples import smallest_text
from matplotlib.figure import Figure
from matplotlib.text import Text

from dpatlas.show.look import Look
from dpatlas.show.panels import label_ends, label_ticks


def test_names_of_curves_keep_the_order_of_their_ends_and_do_not_overlap():
    figure = Figure(figsize=(3.4, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.set(yscale="log")
    ends = {"c": 10.0, "a": 1e-3, "b\nin two lines": 9.9, "d": 10.1}
    for end in ends.values():
        axes.plot([1, 2], [1.0, end])
    limits = axes.get_ylim()
    looks = [Look(name, "black", "", "-") for name in ends]
    label_ends(axes, looks, [(2.0, end) for end in ends.values()])
    assert smallest_text(figure) >= 5
    texts = sorted(axes.texts, key=lambda text: text.get_position()[1])
    assert [text.get_text() for text in texts] == ["a", "b\nin two lines", "c", "d"]
    boxes = [Text.get_window_extent(text) for text in texts]
    for below, above in pairwise(boxes):
        assert above.y0 >= below.y1 - 1
    assert axes.get_ylim() == limits
    assert texts[0].get_position()[1] == pytest.approx(texts[0].xy[1])


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_points_beside_a_single_value_stay_near_it(scale):
    axes = Figure().subplots()
    axes.set_xscale(scale)
    axes.plot([10 / 1.02, 10 * 1.02], [1, 2])
    label_ticks(axes, [10, 10])
    ends = axes.transAxes.inverted().transform(axes.transData.transform([[10, 1], [10.2, 1]]))
    assert ends[0][0] == pytest.approx(0.5)
    assert ends[1][0] < 0.75
