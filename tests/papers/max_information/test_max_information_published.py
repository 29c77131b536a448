"""What the paper prints follows from its formulas and settings."""

import csv
from pathlib import Path

from dpatlas.papers.max_information.formulas.published import PAPER_GRID, TABLE_1

PAPERS = Path(__file__).parents[3] / "workflow" / "papers"
UNION = dict(K1=100, K2=7, delta=0.05, delta_mc=0.0125, beta=0.025)


def test_printed_kappas_follow_from_the_grid_and_from_one_pair_only():
    """42 on MNIST and 447 on CIFAR-10, both at beta = 0.025 / 100."""
    with (PAPERS / "max_information_table1.csv").open() as file:
        printed = [float(row["kappa"]) for row in csv.DictReader(file)]
    assert printed == [0, 42, 0, 447]
    for row, value in zip(TABLE_1, printed, strict=True):
        assert round(row.kappa_of_form("optimised")) == value
        if value:
            matching = [
                (zeta, E)
                for zeta in PAPER_GRID.zetas
                for E in PAPER_GRID.epochs
                if round(PAPER_GRID.kappa(zeta, E, row.T)) == value
            ]
            assert matching == [(row.zeta, row.E)]


def test_hundred_tuples_of_the_paper_are_twentyfive_pairs_times_four_rates():
    for row in TABLE_1:
        tried = PAPER_GRID.lowest_kappa(row.T)
        assert len(tried) == PAPER_GRID.K1 == 100
        pairs = {(one.zeta, one.E) for one in tried}
        assert len(pairs) == 25
        left_out = [
            PAPER_GRID.kappa(zeta, E, row.T)
            for zeta in PAPER_GRID.zetas
            for E in PAPER_GRID.epochs
            if (zeta, E) not in pairs
        ]
        assert max(PAPER_GRID.kappa(*pair, row.T) for pair in pairs) < min(left_out)
        assert row.zeta is None or (row.zeta, row.E) in pairs


def test_table_1_is_the_printed_one_and_the_means_of_tables_2_and_3():
    columns = ["risk_prior", "bound_prior", "risk_posterior", "kappa", "kl", "bound_posterior"]
    with (PAPERS / "max_information_table1.csv").open() as file:
        for row, printed in zip(TABLE_1, csv.DictReader(file), strict=True):
            assert (row.dataset, row.prior) == (printed["dataset"], printed["prior"])
            assert row.n == int(printed["n"])
            for column in columns:
                assert getattr(row, column) == float(printed[column])
    rows = {(row.dataset, row.prior): row for row in TABLE_1}
    with (PAPERS / "max_information_tables2_3.csv").open() as file:
        means = list(csv.DictReader(file))
    assert len(means) == 5 * len(TABLE_1)
    for mean in means:
        row = rows[mean["dataset"], mean["prior"]]
        assert getattr(row, mean["quantity"]) == float(mean["mean"])


def test_union_of_the_grid_is_the_papers():
    paid = (PAPER_GRID.K1, PAPER_GRID.K2, PAPER_GRID.delta, PAPER_GRID.delta_mc, PAPER_GRID.beta)
    assert paid == tuple(UNION.values())
