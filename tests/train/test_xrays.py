"""tools/xrays.py: persons as it says, and a row for every option."""

import re

import numpy as np
import pytest
import xrays


def test_persons_have_one_to_four_records_of_one_class():
    labels = np.random.default_rng(1).integers(0, 2, 200)
    groups = xrays.persons(labels)
    sizes = np.bincount(groups)
    assert sizes.min() == 1 and sizes.max() == 4
    assert all(len(set(labels[groups == person])) == 1 for person in range(len(sizes)))


@pytest.mark.slow
def test_the_table_has_every_option(tmp_path, monkeypatch, capsys):
    draws = np.random.default_rng(0)
    labels = np.arange(40)[:, None] % 2
    images = (draws.integers(0, 40, (40, 28, 28)) + 200 * labels[..., None]).astype(np.uint8)
    np.savez(
        tmp_path / "small.npz",
        train_images=images,
        train_labels=labels,
        test_images=images[:10],
        test_labels=labels[:10],
    )
    rows = {name: {**row, "batch": 5} for name, row in xrays.ROWS.items()}
    monkeypatch.setattr(xrays, "ROWS", rows)
    monkeypatch.setattr(xrays, "COMMON", {**xrays.COMMON, "epochs": 4.0})
    monkeypatch.setattr(xrays, "EPSILONS", (200.0,))
    monkeypatch.setattr(xrays, "SEEDS", range(2))
    xrays.main(tmp_path / "small.npz")
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head == "| option | epsilon 200 |"
    assert [line.split(" | ")[0] for line in lines] == [f"| {name}" for name in rows]
    for line in lines:
        mean, low, high = map(float, re.findall(r"[\d.]+(?= \(|-|\))", line))
        assert 0 <= low <= mean <= high <= 100
