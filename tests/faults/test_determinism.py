"""The whole smoke tier twice at a time: on one core and on two.

On one core its jobs are forks, as in the other tests that run the workflow; on two each is a
process of its own, as for a user.
"""

import numpy as np
import pytest
from checkouts import forked
from fault_runs import SMOKE, files_of, pixels_of, said, start

pytestmark = [pytest.mark.slow, pytest.mark.smoke]


@pytest.fixture(scope="module")
def one_and_two(new_checkout):
    """Copies in which the smoke tier has run on one core and on two."""
    one, two = new_checkout("one"), new_checkout("two-cores")
    forks = forked(one.environment["PYTHONPATH"])
    processes = [
        start(each, cores, "--configfile", SMOKE, environment=environment)
        for each, cores, environment in ((one, 1, forks), (two, 2, {}))
    ]
    try:
        for process, checkout in zip(processes, (one, two), strict=True):
            assert process.wait(timeout=3600) == 0, said(checkout)[-3000:]
    finally:
        for process in processes:
            process.kill()
    return one, two


def test_one_core_and_two_give_the_same_bytes(one_and_two):
    one, two = (files_of(each, "smoke") for each in one_and_two)
    assert {name for name in one if name.endswith("record.json")}
    assert one["manifest.txt"] == two["manifest.txt"]
    assert {name for name in one | two if one.get(name) != two.get(name)} == set()


def test_figures_are_equal_pixel_by_pixel(one_and_two):
    one, two = (pixels_of(each, "smoke") for each in one_and_two)
    assert one.keys() == two.keys() and len(one) > 15
    for name, pixels in one.items():
        assert np.array_equal(pixels, two[name]), name


def test_the_run_verifies_and_so_does_sha256sum(one_and_two):
    for checkout in one_and_two:
        result = checkout.python("-m", "dpatlas", "verify", "--tier", "smoke")
        assert result.returncode == 0, result.stdout + result.stderr
        folder = str(checkout.folder / "results/smoke")
        command = f'cd "{folder}" && sha256sum --quiet -c manifest.txt'
        assert checkout.run("sh", "-c", command).returncode == 0
