"""`rescale_rows` against dense singular values, for rows of wildly different sizes."""

import numpy as np
import pytest
import torch

from taut.linalg import bound_spectral_norm
from taut.nn.row_rescaling import rescale_rows

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@dtypes
@pytest.mark.parametrize("shape", [(1, 1), (3, 40), (40, 3), (12, 12), (300, 80)], ids=str)
@pytest.mark.parametrize("spread", [0, 10, 60])
def test_the_norm_is_proven_at_most_one_for_rows_and_columns_of_any_size(dtype, shape, spread):
    generator = torch.Generator().manual_seed(0)
    rows = spread * (torch.rand(shape[0], 1, generator=generator, dtype=torch.float64) - 0.5)
    columns = spread * (torch.rand(1, shape[1], generator=generator, dtype=torch.float64) - 0.5)
    weight = torch.randn(shape, generator=generator, dtype=torch.float64) * 10 ** (
        (rows + columns) / 2
    )
    weight[:: max(2, shape[0] // 3)] = 0
    weight[-1] = weight[0] = 3 * weight[shape[0] // 2]  # rows that are parallel
    made = rescale_rows(weight.to(dtype))
    assert made.isfinite().all()
    assert bound_spectral_norm(made).value <= 1
    assert np.linalg.norm(made.double().numpy(), 2) <= 1 + 1e-14


@dtypes
def test_an_orthonormal_matrix_comes_back_to_rounding(dtype):
    q = torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64)).Q[:7].to(dtype)
    assert (rescale_rows(q) - q).abs().max() <= (1e-12 if dtype == torch.float64 else 1e-6)


def test_the_lengths_of_rows_are_the_weights_of_a_weighted_sum():
    weight = torch.randn(5, 6, dtype=torch.float64)
    q = torch.rand(5, dtype=torch.float64) + 0.1
    sums = (weight @ weight.T).abs() @ q / q
    expected = weight / sums.sqrt()[:, None]
    torch.testing.assert_close(rescale_rows(q[:, None] * weight), expected)
