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
    for product in (times_transpose(rows, matrix), times(rows, matrix.T.contiguous())):
        torch.testing.assert_close(product.double(), exact, **tolerance)
        assert product.dtype == dtype
    # Outside float32 there is no other routine, and that one has no gradient.
    if dtype == torch.float32:
        assert products._prefers_onednn(rows, matrix) == (sizes == LARGE and onednn_available())
    assert not products._prefers_onednn(rows.double(), matrix.double())
    assert not products._prefers_onednn(rows, matrix.clone().requires_grad_())
