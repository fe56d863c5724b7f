"""The loop in memory behind the estimators keeps the best epoch and says when it diverges."""

import pytest
import torch
from torch import nn

from taut.errors import NonFiniteError
from taut.training.fitting import fit

X = torch.linspace(-1, 1, 40)[:, None]


def test_the_best_epoch_on_validation_rows_is_kept():
    model, told = nn.Linear(1, 1), []

    def tell(epoch, value, found):
        told.append((found, model.weight.item()))

    # Validation wants the opposite of training, so the best epoch is an early one.
    fit(
        model, X, 2 * X, nn.MSELoss(), epochs=50, batch_size=10, lr=0.1,
        validation=(X, -2 * X), patience=3, on_epoch=tell,
    )  # fmt: skip
    assert len(told) == 4
    assert model.weight.item() == min(told)[1]
    assert not model.training


def test_equal_seeds_take_equal_steps():
    ends = []
    for seed in (0, 0, 1):
        torch.manual_seed(0)
        model = nn.Linear(1, 1)
        fit(model, X, X.abs(), nn.MSELoss(), epochs=3, batch_size=7, lr=0.1, seed=seed)
        ends.append(model.weight.item())
    assert ends[0] == ends[1] != ends[2]


def test_a_loss_without_end_is_an_error():
    with pytest.raises(NonFiniteError, match="the loss must stay finite; got .* in epoch 1"):
        fit(nn.Linear(1, 1), X, X * 1e30, nn.MSELoss(), epochs=2, batch_size=8)
