"""Every kind of network: as steep as it says and no steeper, for every shape that it takes."""

import numpy as np
import pytest
import torch

import taut
from support import seeded
from taut.attacks import adversarial_batch
from taut.data import LabelledData, LabelledSet, load_labelled
from taut.errors import ArgumentError
from taut.training import TrainConfig, build_network, resolve, train
from taut.training.objective import parseval_step

pytestmark = pytest.mark.slow

SHAPES = [(1, 8, 8), (3, 10, 7), (1, 1, 1)]


def network(shape, outputs=4, **fields):
    given = {"arch": "conv", "channels": (4, 8), "hidden": (12,), "constraint": "orthonormal"}
    config = TrainConfig(**{**given, "lipschitz": 1.0, "dtype": "float64", **fields})
    net = build_network(config, shape, outputs)
    with torch.no_grad():  # so that no bias hides what an activation does
        for name, value in net.named_parameters():
            if name.endswith("bias"):
                value.normal_(generator=seeded(1))
    return net


def draw(count, shape):
    return torch.randn(count, *shape, dtype=torch.float64, generator=seeded())


def jacobians(net, shape, count=3):
    """Dense ones, at several inputs, for numpy."""
    for x in draw(count, shape):
        made = torch.autograd.functional.jacobian(lambda v: net(v[None])[0], x)
        yield made.reshape(made.shape[0], -1).numpy()


@pytest.mark.parametrize("activation", ["maxmin", "groupsort4", "maxout"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_jacobian_of_conv_has_norm_one_at_most_and_the_bound_says_so(shape, activation):
    net = network(shape, activation=activation).eval()
    bound = taut.bound_lipschitz(net, "l2", shape).value
    assert bound <= 1 + 1e-6
    for jacobian in jacobians(net, shape):
        assert np.linalg.norm(jacobian, 2) <= bound


def test_conv_keeps_every_gradient_where_channels_suffice():
    # 1 -> 4 -> 16 channels: nothing is lost, so each class has a gradient of length 1.
    net = network((1, 8, 8), channels=(4, 16), hidden=(64,)).eval()
    for jacobian in jacobians(net, (1, 8, 8)):
        np.testing.assert_allclose(np.linalg.svd(jacobian)[1], 1, rtol=1e-5)


@pytest.mark.parametrize("lipschitz", [0.1, 3.0, 1000.0])
def test_a_constant_is_spread_and_never_passed(lipschitz):
    for norm, constraint in (("l2", "orthonormal"), ("linf", "linf")):
        fields = {"norm": norm, "constraint": constraint, "lipschitz": lipschitz}
        net = network((1, 8, 8), **fields).eval()
        bound = taut.bound_lipschitz(net, norm, (1, 8, 8)).value
        assert bound <= lipschitz * (1 + 1e-12)
        order = 2 if norm == "l2" else np.inf
        for jacobian in jacobians(net, (1, 8, 8)):
            assert np.linalg.norm(jacobian, order) <= bound


@pytest.mark.parametrize(
    "constraint, norm", [("bjorck", "l2"), ("spectral", "l2"), ("linf", "linf")]
)
def test_lenet_is_as_steep_as_it_says(constraint, norm):
    shape = (1, 16, 17)
    fields = {"channels": (4, 6), "hidden": (10,), "constraint": constraint, "norm": norm}
    net = network(shape, arch="lenet", **fields).eval()
    bound = taut.bound_lipschitz(net, norm, shape).value
    assert bound <= 1 + 1e-6
    for jacobian in jacobians(net, shape):
        assert np.linalg.norm(jacobian, 2 if norm == "l2" else np.inf) <= bound


def test_the_sizes_of_known_networks():
    sizes = {}
    images = np.zeros((20, 3, 32, 32), np.float32)
    part = LabelledSet(images, np.arange(20) % 10, tuple("0123456789"), (), 0.0, 1.0, "images")
    data = LabelledData(part, part, "images")
    for arch, activation in (("wrn", "relu"), ("wrn", "maxmin")):
        config = resolve(TrainConfig(arch=arch, activation=activation), data)
        net = build_network(config, (3, 32, 32), 10)
        sizes[arch, activation] = sum(value.numel() for value in net.parameters())
    assert set(sizes.values()) == {5_849_050}
    config = TrainConfig(arch="lenet", channels=(10, 20), hidden=(50,), constraint="none")
    config = TrainConfig(**{**config.to_dict(), "lipschitz": 1.0, "activation": "relu"})
    net = build_network(config, (1, 28, 28), 10)
    assert [tuple(value.shape) for value in net.parameters() if value.dim() > 1] == [
        (10, 1, 5, 5),
        (20, 10, 5, 5),
        (50, 320),
        (10, 50),
    ]


@pytest.mark.parametrize(
    "activation, beta, shape",
    [("relu", 0.0, (3, 8, 8)), ("maxmin", 0.01, (1, 9, 7)), ("maxout", 0.0, (1, 4, 4))],
    ids=["relu", "maxmin-parseval", "maxout"],
)
def test_wrn_takes_any_activation_and_its_file_gives_it_back(tmp_path, activation, beta, shape):
    fields = {"constraint": "none", "channels": (4, 8, 8), "hidden": (), "dropout": 0.1}
    net = network(shape, arch="wrn", activation=activation, parseval_beta=beta, **fields)
    x = draw(4, shape)
    net(x).square().sum().backward()
    assert all(value.grad is not None for value in net.parameters())
    net.eval()
    taut.save(net, tmp_path / "net", norm="l2", input_shape=shape)
    torch.testing.assert_close(taut.load(tmp_path / "net")(x), net(x), rtol=0, atol=0)


def test_the_bound_of_a_residual_network_holds():
    fields = {"constraint": "none", "channels": (4, 6), "hidden": ()}
    net = network((1, 6, 6), arch="wrn", **fields)
    net(draw(8, (1, 6, 6)))
    net.eval()
    bound = taut.bound_lipschitz(net, "l2", (1, 6, 6)).value
    for jacobian in jacobians(net, (1, 6, 6)):
        assert np.linalg.norm(jacobian, 2) <= bound < np.inf


def test_parseval_steps_end_at_orthonormal_kernels_and_leave_proven_layers_alone():
    plain, proven = torch.nn.Conv2d(2, 5, 3), taut.nn.OrthonormalConv2d(5, 4, 3)
    net = torch.nn.Sequential(plain, proven)
    before = proven.weight.detach().clone()
    for _ in range(300):
        parseval_step(net, 0.1)
    matrix = plain.weight.detach().double().flatten(1).numpy()
    np.testing.assert_allclose(np.linalg.svd(matrix)[1], 1, atol=1e-5)
    assert torch.equal(proven.weight, before)


@pytest.mark.parametrize(
    "fields, shape, text",
    [
        ({}, (7,), "`arch` must be 'dense' for inputs that are not images; got arch='conv'"),
        ({"arch": "lenet"}, (8, 8), "`arch` must be 'dense' for inputs that are not images"),
        ({"constraint": "l1"}, (1, 8, 8), "got constraint='l1', of which there is no convolution"),
        ({"constraint": "parseval"}, (1, 8, 8), "`constraint` must be one of 'orthonormal'"),
        ({"arch": "lenet"}, (1, 15, 28), "needs sides of at least 16 pixels; got inputs of shape"),
        ({"arch": "wrn"}, (3, 8, 8), "`constraint` must be 'none' with arch='wrn'"),
        (
            {"arch": "wrn", "constraint": "none", "channels": (4, 4, 4)},
            (3, 3, 8),
            "'wrn' with 3 groups needs sides of at least 4 pixels",
        ),
        ({"channels": (3, 8)}, (1, 8, 8), "channels"),
    ],
    ids=str,
)
def test_what_cannot_be_built_is_refused_with_a_reason(fields, shape, text):
    with pytest.raises(ArgumentError, match=text.replace("(", r"\(")):
        network(shape, **fields)


def test_tables_are_refused_before_anything_is_written(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    part = LabelledSet(rows, np.arange(20) % 2, ("a", "b"), (), None, None, "rows")
    with pytest.raises(
        ArgumentError, match="`arch` must be 'dense' for inputs that are not images"
    ):
        train(TrainConfig(arch="conv"), tmp_path / "run", data=LabelledData(part, part, "rows"))
    assert not (tmp_path / "run").exists()


def test_no_attack_breaks_a_certificate_of_conv():
    small = {"arch": "conv", "channels": (8, 16), "hidden": (16,), "batch_size": 240, "threads": 1}
    run = train(TrainConfig(**small, epochs=4, radius=0.3, validation=0.0, lr=0.005))
    assert run.result["clean"] > 0.7 and run.result["lipschitz"] <= 1 + 1e-6
    data = load_labelled("digits").test
    x, labels = torch.from_numpy(data.inputs[:100]), torch.from_numpy(data.labels[:100])
    found = taut.certify(run.model, x, labels=labels)
    assert found.correct is not None
    for radius in (0.1, 0.3, 0.6):
        safe = found.correct & (found.radius > radius)
        ball = {"radius": radius, "norm": "l2", "num_steps": 20, "low": 0.0, "high": 1.0}
        moved = adversarial_batch(run.model, x, labels, **ball, generator=seeded())
        assert (moved - x).flatten(1).norm(dim=1).max() <= radius * (1 + 1e-5)
        assert (run.model(moved).argmax(1) == labels)[safe].all()
    assert (found.radius > 0.1).double().mean() > 0.5  # so that the above says something


def test_folded_conv_is_plain_and_equal():
    net = network((1, 6, 6), dtype="float32").eval()
    folded = taut.fold(net)
    assert not any(isinstance(part, taut.nn.ConstrainedLayer) for part in folded.modules())
    x = draw(3, (1, 6, 6)).float()
    torch.testing.assert_close(folded(x), net(x), rtol=1e-5, atol=1e-6)
