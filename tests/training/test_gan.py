"""GANs: the critic's value is a lower bound of the distance, and interrupted runs resume to the bit."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import taut
from support import seeded
from taut.data import LabelledData, LabelledSet
from taut.errors import ArgumentError, DamagedFileError, NonFiniteError
from taut.training import from_toml, to_toml
from taut.training.gan import (
    CRITICS,
    GanConfig,
    build_critic,
    build_generator,
    draw_grid,
    load_gan,
    load_gan_run,
    train_gan,
)

pytestmark = pytest.mark.slow

SMALL = GanConfig(
    data="digits",
    width=4,
    critic_hidden=8,
    generator_hidden=8,
    latent=3,
    batch_size=16,
    num_steps=12,
    log_every=5,
    sample_every=10,
    checkpoint_every=4,
    threads=1,
)


def pictures(rows: int, shape: tuple[int, ...], seed: int = 0) -> LabelledData:
    drawn = np.random.default_rng(seed).random((2 * rows, *shape), np.float32)
    labels = np.arange(2 * rows) % 2
    sets = [
        LabelledSet(drawn[part], labels[part], ("a", "b"), (), 0.0, 1.0, "random images")
        for part in (slice(rows), slice(rows, None))
    ]
    return LabelledData(*sets, name="random images")


@pytest.mark.parametrize("critic", CRITICS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)], ids=str)
def test_shapes_of_the_players(critic, shape):
    config = replace(SMALL, critic=critic)
    generator = build_generator(config, shape)
    images = generator.sample(5, seeded(0))
    assert images.shape == (5, *shape)
    assert images.abs().max() <= 1
    assert build_critic(config, shape)(images).shape == (5, 1)


def test_the_paper_has_the_layers_of_infogan():
    config = GanConfig.paper()
    generator, critic = build_generator(config, (1, 28, 28)), build_critic(config, (1, 28, 28))
    shapes = [tuple(p.shape) for p in generator.parameters() if p.dim() > 1]
    assert shapes == [(1024, 62), (6272, 1024), (128, 64, 4, 4), (64, 1, 4, 4)]
    layers: list[Any] = list(critic)
    kernels = [layer.effective_weight().shape for layer in (layers[0], layers[2])]
    assert [tuple(k) for k in kernels] == [(64, 1, 4, 4), (128, 64, 4, 4)]
    assert tuple(layers[5].weight.shape) == (1024, 6272)


@pytest.mark.parametrize("convolution", ["orthonormal", "spectral"])
def test_the_constrained_critic_is_1_lipschitz_after_wild_training(convolution):
    config = replace(SMALL, convolution=convolution, critic_lr=1.0, num_steps=6)
    shape = (3, 8, 8)
    found = []
    run = train_gan(config, data=pictures(40, shape), on_progress=found.append)
    assert run.result["lipschitz"] <= 1
    assert all(p.row is None or p.row["lipschitz"] <= 1 for p in found)


def test_the_proven_constant_covers_dense_jacobians(tmp_path):
    shape = (1, 8, 8)
    train_gan(replace(SMALL, critic_lr=0.1), tmp_path / "run")
    critic = taut.load(tmp_path / "run" / "critic.safetensors").double().eval()
    proven = taut.bound_lipschitz(critic, input_shape=shape).value
    assert proven <= 1
    points = torch.randn(40, *shape, dtype=torch.float64, generator=seeded(3))
    slopes = []
    for point in points:
        jacobian = torch.autograd.functional.jacobian(lambda x: critic(x[None])[0], point)
        slopes.append(np.linalg.norm(np.asarray(jacobian).reshape(1, -1), 2))
    assert max(slopes) <= proven * (1 + 1e-12)
    # Tight enough to tell a constrained critic from a shrunken one.
    assert max(slopes) > 0.5


def test_the_value_of_the_critic_is_at_most_the_distance_of_the_batches():
    linear_sum = pytest.importorskip("scipy.optimize").linear_sum_assignment
    run = train_gan(replace(SMALL, num_steps=40, critic_steps=100, critic_lr=0.02))
    critic_config = replace(SMALL, critic_lr=0.02)
    critic = build_critic(critic_config, (1, 8, 8)).eval()
    data = taut.data.load_labelled("digits")
    x = torch.as_tensor(data.train.inputs[:60]) * 2 - 1
    y = run.generator.sample(60, seeded(5))
    optimizer = torch.optim.Adam(critic.parameters(), 0.02)
    cost = torch.cdist(x.flatten(1).double(), y.flatten(1).double()).numpy()
    rows, columns = linear_sum(cost)
    exact = cost[rows, columns].mean()
    for _ in range(30):
        optimizer.zero_grad()
        dual = taut.transport.dual_value(critic, x, y)
        assert dual.item() <= exact * (1 + 1e-5)
        (-dual).backward()
        optimizer.step()
    assert dual.item() > 0.3 * exact


def test_clipped_weights_are_inside_the_clip(tmp_path):
    config = replace(SMALL, critic="clipped", critic_lr=1.0, clip=0.02)
    train_gan(config, tmp_path / "run")
    from safetensors.torch import load_file

    held = load_file(tmp_path / "run" / "checkpoint.safetensors")
    weights = [t for name, t in held.items() if name.startswith("critic.model.")]
    assert len(weights) == 8
    largest = max(t.abs().max().item() for t in weights)
    assert largest <= np.float32(0.02)
    assert largest > 0.019
    assert not (tmp_path / "run" / "critic.safetensors").exists()


@pytest.mark.parametrize("activation", ["leaky_relu", "maxmin"])
def test_the_penalty_pulls_slopes_to_one(activation):
    config = replace(
        SMALL, critic="penalty", activation=activation, num_steps=80, critic_steps=100,
        critic_lr=0.01, penalty=100.0,
    )  # fmt: skip
    run = train_gan(config)
    free = train_gan(replace(config, penalty=1e-9))
    # Without a penalty nothing holds the value back.
    assert 0 < run.history[-1]["dual"] < free.history[-1]["dual"] / 3
    assert run.history[-1]["lipschitz"] is None


@pytest.mark.parametrize("critic", CRITICS)
def test_a_stopped_run_ends_with_the_same_bits(critic, tmp_path):
    config = replace(SMALL, critic=critic)
    whole = train_gan(config, tmp_path / "whole")

    class Stop(Exception):
        pass

    def stop(progress):
        if progress.step == 7:
            raise Stop

    with pytest.raises(Stop):
        train_gan(config, tmp_path / "parts", on_progress=stop)
    told = []
    parts = train_gan(config, tmp_path / "parts", on_progress=told.append)
    assert told[0].step == 5
    for name, value in whole.generator.state_dict().items():
        assert torch.equal(value, parts.generator.state_dict()[name]), name
    for name in ("model.safetensors", "samples/step-000012.png"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    rows = [[row["step"], row["dual"]] for row in whole.history]
    assert rows == [[row["step"], row["dual"]] for row in parts.history]
    assert [row[0] for row in rows] == [5, 10, 12]
    lines = (tmp_path / "parts" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5, 10, 12]


def test_a_killed_process_resumes_to_the_same_bits(tmp_path):
    whole = train_gan(SMALL)
    code = (
        "import os, signal, sys\n"
        "from taut.training import from_toml\n"
        "from taut.training.gan import GanConfig, train_gan\n"
        "def die(p):\n"
        "    if p.step == 9: os.kill(os.getpid(), signal.SIGKILL)\n"
        "train_gan(from_toml(sys.stdin.read(), GanConfig), sys.argv[1], on_progress=die)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run")],
        input=to_toml(SMALL),
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "run" / "result.json").exists()
    with pytest.raises(ArgumentError, match="finished run; got a folder without res"):
        load_gan(tmp_path / "run")
    resumed = train_gan(SMALL, tmp_path / "run")
    for name, value in whole.generator.state_dict().items():
        assert torch.equal(value, resumed.generator.state_dict()[name]), name


def test_a_finished_run_is_read_and_frozen(tmp_path):
    run = train_gan(SMALL, tmp_path / "run")
    told = []
    again = train_gan(SMALL, tmp_path / "run", on_progress=told.append)
    assert told == []
    generator = load_gan(tmp_path / "run")
    assert not generator.training
    assert not any(p.requires_grad for p in generator.parameters())
    draws = [g.sample(3, seeded(1)) for g in (run.generator, generator)]
    assert torch.equal(*draws)
    assert again.history == load_gan_run(tmp_path / "run").history
    (tmp_path / "run" / "model.safetensors").write_bytes(b"no such file")
    with pytest.raises(DamagedFileError, match="must be readable"):
        load_gan(tmp_path / "run")


def test_sampling_draws_from_its_generator_alone():
    generator = build_generator(SMALL, (1, 8, 8))
    before = torch.get_rng_state()
    one = generator.sample(4, seeded(0))
    assert torch.equal(one, generator.sample(4, seeded(0)))
    assert not torch.equal(one, generator.sample(4, seeded(1)))
    assert torch.equal(before, torch.get_rng_state())
    assert generator.training


def test_training_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    train_gan(replace(SMALL, num_steps=1))
    assert torch.equal(before, torch.get_rng_state())


def test_a_configuration_and_its_text_are_one():
    config = replace(SMALL, critic="clipped", activation="maxmin", data='a "b"\\c').resolved()
    assert from_toml(to_toml(config), GanConfig) == config
    assert from_toml(to_toml(GanConfig.paper()), GanConfig) == GanConfig.paper()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"critic": "weak"}, "`critic` must be one of 'lipschitz', 'clipped', 'penalty'"),
        ({"width": 3}, "`width` must be even, because MaxMin sorts pairs; got width=3. Use 4."),
        ({"batch_size": 1}, "`batch_size` must be"),
    ],
    ids=lambda held: next(iter(held)) if isinstance(held, dict) else "",
)
def test_wrong_values_are_refused(changes, sentence):
    with pytest.raises(ArgumentError) as raised:
        replace(SMALL, **changes)
    assert sentence in str(raised.value)


def test_errors_name_what_to_do(tmp_path):
    with pytest.raises(ArgumentError, match="The nearest is 'critic_lr'"):
        from_toml("critic_rl = 0.1", GanConfig)
    with pytest.raises(ArgumentError, match=r"multiples of 4; got inputs of shape \(1, 10, 10\)"):
        train_gan(SMALL, data=pictures(20, (1, 10, 10)))
    with pytest.raises(ArgumentError, match="without resolved.toml"):
        load_gan(tmp_path)
    train_gan(SMALL, tmp_path / "run")
    with pytest.raises(ArgumentError, match=r"another latent \(there 3, now 5\)"):
        train_gan(replace(SMALL, latent=5), tmp_path / "run")


def test_a_run_is_not_resumed_on_other_data(tmp_path):
    shape = (1, 8, 8)

    def stop(progress):
        if progress.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_gan(SMALL, tmp_path, data=pictures(20, shape), on_progress=stop)
    with pytest.raises(ArgumentError, match="got other numbers"):
        train_gan(SMALL, tmp_path, data=pictures(20, shape, seed=1))


def test_divergence_is_an_error():
    with pytest.raises(NonFiniteError, match="Lower `critic_lr`"):
        train_gan(replace(SMALL, critic="penalty", critic_lr=1e30))


def test_a_grid_holds_every_image_once():
    images = torch.linspace(-1, 1, 5)[:, None, None, None].expand(5, 3, 2, 2)
    grid = draw_grid(images)
    assert grid.shape == (5, 8, 3)
    assert [int(v) for v in (grid[0, 0, 0], grid[0, 3, 1], grid[3, 3, 2])] == [0, 64, 255]
    assert grid[2].max() == 0
    with pytest.raises(ArgumentError, match="1 or 3 channels"):
        draw_grid(torch.zeros(2, 2, 4, 4))
