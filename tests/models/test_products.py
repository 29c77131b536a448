import pytest
import torch

from dpatlas.models import products
from dpatlas.models.products import onednn_available, times, times_transpose

# (records, k, j) on both sides of the threshold.
SMALL, LARGE = (20, 30, 40), (300, 640, 512)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_products_equal_mm(sizes, dtype):
    records, k, j = sizes
    draws = torch.Generator().manual_seed(0)
    rows = torch.randn(records, k, dtype=dtype, generator=draws)
    matrix = torch.randn(j, k, dtype=dtype, generator=draws)
    exact = rows.double() @ matrix.double().T
    # The error of a sum of k products in float32 grows like its norm, not like its value.
    tolerance = {"rtol": 0, "atol": 1e-5 * k**0.5 if dtype == torch.float32 else 1e-11}
    found = times_transpose(rows, matrix)
    torch.testing.assert_close(found.double(), exact, **tolerance)
    other = times(rows, matrix.T.contiguous())
    torch.testing.assert_close(other.double(), exact, **tolerance)
    assert found.dtype == other.dtype == dtype


@pytest.mark.skipif(not onednn_available(), reason="torch without oneDNN")
def test_only_large_float32_products_outside_autograd_leave_the_default_routine(monkeypatch):
    called = []
    routine = torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(
        torch.ops.mkldnn,
        "_linear_pointwise",
        lambda *arguments: called.append(arguments[0].shape) or routine(*arguments),
        raising=False,
    )

    def fast(sizes, dtype=torch.float32, grad=False):
        called.clear()
        records, k, j = sizes
        rows = torch.randn(records, k, dtype=dtype)
        times_transpose(rows, torch.randn(j, k, dtype=dtype, requires_grad=grad))
        return bool(called)

    assert sizes_cross_the_threshold()
    assert fast(LARGE)
    assert not fast(SMALL)
    assert not fast(LARGE, dtype=torch.float64)
    assert not fast(LARGE, grad=True)


def sizes_cross_the_threshold():
    small, large = (records * k * j for records, k, j in (SMALL, LARGE))
    return small < products.LARGE <= large
