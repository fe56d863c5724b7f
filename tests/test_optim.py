"""AggMo against SGD, a numpy oracle, and the contract of a torch optimiser."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from taut.errors import ArgumentError
from taut.optim import AggMo


def make_net(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    generator = torch.Generator().manual_seed(3)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return net


def run(net: nn.Module, steps: int, *optimizers: torch.optim.Optimizer, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(net.parameters()).dtype
    for _ in range(steps):
        net.zero_grad()
        net(torch.randn(11, 5, generator=generator, dtype=dtype)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()


def same(left: nn.Module, right: nn.Module) -> bool:
    return all(
        torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True)
    )


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_one_beta_is_sgd_with_momentum(beta: float, weight_decay: float) -> None:
    ours, theirs = make_net(torch.float64), make_net(torch.float64)
    options = {"lr": 0.02, "weight_decay": weight_decay}
    run(ours, 40, AggMo(ours.parameters(), betas=[beta], **options))
    run(theirs, 40, torch.optim.SGD(theirs.parameters(), momentum=beta, **options))
    assert same(ours, theirs)
    assert not same(ours, make_net(torch.float64))


@pytest.mark.parametrize("betas", [(0.0, 0.9, 0.99), (0.3,), (0.0, 0.0, 0.5), (0.9, 0.0)])
def test_quadratic_follows_the_recurrence(betas: tuple[float, ...]) -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    hessian, theta = root @ root.T / 4, rng.normal(size=4)
    parameter = nn.Parameter(torch.from_numpy(theta.copy()))
    optimizer = AggMo([parameter], lr=0.05, betas=betas, weight_decay=0.01)
    quadratic = torch.from_numpy(hessian)

    velocity = np.zeros((len(betas), 4))
    for _ in range(200):
        gradient = hessian @ theta + 0.01 * theta
        velocity = np.array(betas)[:, None] * velocity - gradient
        theta = theta + 0.05 / len(betas) * velocity.sum(0)

        optimizer.zero_grad()
        (0.5 * parameter @ quadratic @ parameter).backward()
        optimizer.step()
        np.testing.assert_allclose(parameter.detach().numpy(), theta, rtol=1e-10, atol=1e-12)


def test_resumed_run_is_bit_equal() -> None:
    straight, resumed = make_net(), make_net()
    optimizer = AggMo(straight.parameters(), lr=0.01)
    run(straight, 10, optimizer, seed=1)
    run(straight, 10, optimizer, seed=2)

    first = AggMo(resumed.parameters(), lr=0.01)
    run(resumed, 10, first, seed=1)
    saved = copy.deepcopy(first.state_dict())
    second = AggMo(resumed.parameters(), lr=77.0, betas=(0.5,))
    second.load_state_dict(saved)
    run(resumed, 10, second, seed=2)
    assert same(straight, resumed)


def test_groups_keep_their_own_options() -> None:
    grouped, apart = make_net(), make_net()
    first = {"params": grouped[0].parameters(), "lr": 0.1, "betas": [0.5]}
    run(grouped, 5, AggMo([first, {"params": grouped[2].parameters()}], lr=0.01))
    run(
        apart,
        5,
        AggMo(apart[0].parameters(), lr=0.1, betas=(0.5,)),
        AggMo(apart[2].parameters(), lr=0.01),
    )
    assert same(grouped, apart)


def test_scheduler_scales_the_step() -> None:
    parameter = nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = AggMo([parameter], lr=1.0, betas=(0.0, 0.0))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    places = []
    for _ in range(4):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        schedule.step()
        places.append(parameter.item())
    assert places == [-1.0, -1.5, -1.75, -1.875]


def test_closure_is_run_with_gradients_and_its_loss_returned() -> None:
    parameter = nn.Parameter(torch.tensor(2.0))
    optimizer = AggMo([parameter], lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = parameter.square()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert parameter.item() < 2.0


def test_parameters_without_gradient_are_left_alone() -> None:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = AggMo([used, unused], weight_decay=0.5)
    used.sum().backward()
    optimizer.step()
    assert torch.equal(unused.data, torch.ones(2))
    assert unused not in optimizer.state
    assert not torch.equal(used.data, torch.ones(2))


def test_mixed_dtypes_in_one_group() -> None:
    single = nn.Parameter(torch.ones(3))
    double = nn.Parameter(torch.ones(3, dtype=torch.float64))
    optimizer = AggMo([single, double], lr=0.1)
    (single.square().sum() + double.square().sum()).backward()
    optimizer.step()
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.data.double(), double.data)


def test_gradients_are_not_written() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = AggMo([parameter], weight_decay=0.5)
    parameter.grad = torch.full((3,), 2.0)
    optimizer.step()
    assert torch.equal(parameter.grad, torch.full((3,), 2.0))


def test_sparse_gradients_are_refused() -> None:
    embedding = nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(ArgumentError, match=r"dense gradients.*shape \(4, 2\).*SparseAdam"):
        AggMo(embedding.parameters()).step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.0}, "`lr` must be finite and positive; got lr=0.0"),
        ({"lr": float("nan")}, "`lr` must be finite and positive"),
        ({"betas": (0.0, 1.0)}, r"must lie in \[0, 1\); got betas=1.0. .* never forgets"),
        ({"betas": (-0.1,)}, r"must lie in \[0, 1\); got betas=-0.1"),
        ({"betas": (float("nan"),)}, r"must lie in \[0, 1\)"),
        ({"betas": ()}, "at least one damping factor"),
        ({"betas": 0.9}, r"single number 0.9. Use betas=\(0.9,\)"),
        ({"weight_decay": -1.0}, "`weight_decay` must be finite and >= 0"),
    ],
)
def test_bad_options_teach(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        AggMo([nn.Parameter(torch.ones(1))], **options)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match=message):
        AggMo([{"params": [nn.Parameter(torch.ones(1))], **options}])
