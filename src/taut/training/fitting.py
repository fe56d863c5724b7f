"""`fit`: training of a network on tensors, without folders or checkpoints."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from taut.errors import check_count, check_positive
from taut.training.config import TrainConfig
from taut.training.learning_rate_schedule import learning_rate
from taut.training.seeds import batches, generator_at
from taut.training.state import TrainingState


def fit(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor],
    *,
    epochs: int,
    batch_size: int,
    lr: float = 1e-3,
    seed: int = 0,
    validation: tuple[Tensor, Tensor] | None = None,
    patience: int = 10,
    weights: Tensor | None = None,
    on_epoch: Callable[[int, float, float | None], None] | None = None,
) -> tuple[float, ...]:
    """Trains `model` in place by Adam with a cosine schedule; leaves it in evaluation mode.

    Args:
        model: any module.
        inputs: `(n, ...)`.
        targets: `(n, ...)`, compared with the outputs by `loss`.
        loss: `(outputs, targets) -> scalar`, a mean over rows.
        epochs: number of passes over the rows.
        batch_size: number of rows per step.
        lr: initial learning rate.
        seed: random seed of the order of rows.
        validation: rows to select the best epoch by, the first with the smallest loss; without
            any the last epoch counts.
        patience: number of epochs without a better one after which training stops.
        weights: `(n,)`, relative weights of the rows: each epoch draws rows in proportion to them, so
            that the expected loss is the weighted mean. None takes every row once.
        on_epoch: called after each epoch with its number, its loss, and that on validation rows.

    Returns:
        The mean training loss of each epoch.

    Raises:
        NonFiniteError: training diverged.

    Example:
        >>> x = torch.linspace(-1, 1, 64)[:, None]
        >>> model = torch.nn.Linear(1, 1)
        >>> _ = fit(model, x, 2 * x, torch.nn.MSELoss(), epochs=50, batch_size=16, lr=0.1)
        >>> round(model.weight.item(), 3)
        2.0
    """
    for name, count in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        check_count("fit", name, count)
    check_positive("fit", "lr", lr)
    config = TrainConfig(optimizer="adam", lr=lr, epochs=epochs)
    state = TrainingState(config, model)
    position, best, best_epoch = state.position, float("inf"), 0
    while position.epoch < epochs and position.epoch - best_epoch < (
        patience if state.best else epochs
    ):
        order = batches(len(inputs), batch_size, seed, position.epoch)
        if weights is not None:
            source = generator_at(seed, position.epoch)
            drawn = torch.multinomial(weights, len(inputs), replacement=True, generator=source)
            order = drawn.split(batch_size)
        for rows in order:
            done = position.epoch * len(order) + position.step
            with state.step(learning_rate(config, done, len(order))):
                value = loss(model(inputs[rows]), targets[rows])
                value.backward()
            position.count(len(rows), value.item() * len(rows))
        validation_loss = None if validation is None else _evaluate(model, loss, *validation)
        position.end_epoch({"loss": position.loss / position.seen})
        if on_epoch is not None:
            on_epoch(position.epoch, position.history[-1]["loss"], validation_loss)
        if validation_loss is not None and validation_loss < best:
            best, best_epoch = validation_loss, position.epoch
            state.remember_best()
    if state.best:
        model.load_state_dict(state.best)
    model.eval()
    return tuple(row["loss"] for row in position.history)


@torch.no_grad()
def _evaluate(
    model: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], inputs: Tensor, targets: Tensor
) -> float:
    model.eval()
    return loss(model(inputs), targets).item()
