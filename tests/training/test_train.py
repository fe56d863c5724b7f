"""What comes out of a run, against numbers found in another way."""

import json
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import taut
from taut.data import LabelledData, LabelledSet
from taut.errors import ArgumentError, DataError, NonFiniteError, TautWarning
from taut.training import ARCHITECTURES, InputSpec, TrainConfig, load_run, prepare, train

SMALL = {"hidden": (32, 32), "epochs": 6, "batch_size": 128, "threads": 1, "lr": 0.005}


def blobs(rows=300, *, seed=0, spread=1.0, labels=("no", "yes"), low=None):
    """Two clouds in three columns of very different units; the third column says nothing."""
    generator = np.random.default_rng(seed)
    number = generator.integers(0, len(labels), rows)
    points = generator.normal(size=(rows, 3)) + 4.0 * number[:, None] * np.array([1.0, 1.0, 0.0])
    inputs = (points * np.array([1000.0, 0.001, 1.0]) * spread).astype(np.float32)
    columns = ("a", "b", "c")
    return LabelledSet(inputs, number, labels, columns, low, None, "blobs")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    return train(TrainConfig(**SMALL, radius=0.3), out)


def numpy_network(model, x):
    """The network in numpy and float64, and the norms of its layers by singular values."""
    x = x.double().numpy().reshape(len(x), -1)
    norms = []
    dense = [m for m in model if hasattr(m, "evaluation_weight")]
    for place, layer in enumerate(dense):
        weight = layer.evaluation_weight().double().numpy()
        norms.append(np.linalg.svd(weight, compute_uv=False)[0])
        x = x @ weight.T + layer.bias.detach().double().numpy()
        if place < len(dense) - 1:
            half = x.shape[1] // 2
            x = np.hstack(
                [np.maximum(x[:, :half], x[:, half:]), np.minimum(x[:, :half], x[:, half:])]
            )
    return x, norms


def test_the_result_is_what_numpy_finds(digits):
    test = digits.data().test
    logits, norms = numpy_network(digits.model, test.inputs)
    labels = test.labels.numpy()
    rows = np.arange(len(labels))
    assert digits.result["clean"] == np.mean(logits.argmax(1) == labels)
    assert math.prod(norms) <= digits.result["lipschitz"] <= digits.config.lipschitz
    assert_allclose(digits.result["lipschitz"], math.prod(norms), rtol=1e-8)
    others = logits.copy()
    others[rows, labels] = -np.inf
    lead = logits[rows, labels] - others.max(1)
    # Differences of rows of the last weight are at most sqrt(2) long, so this counts too few.
    at_least = np.mean(lead > math.sqrt(2) * math.prod(norms) * 0.3 * (1 + 1e-9))
    assert at_least <= digits.result["certified"] <= digits.result["clean"]
    last = [m for m in digits.model if hasattr(m, "evaluation_weight")][-1]
    w = last.evaluation_weight().double().numpy()
    apart = np.linalg.norm(w[labels][:, None] - w[None], axis=2) * math.prod(norms[:-1])
    leads = logits[rows, labels][:, None] - logits
    leads[rows, labels], apart[rows, labels] = np.inf, 1.0
    assert_allclose(digits.result["certified"], np.mean((leads / apart).min(1) > 0.3))


def test_it_learns(digits):
    assert digits.result["clean"] > 0.85
    assert digits.result["certified"] > 0.5
    first, *_, last = digits.history
    assert last["loss"] < first["loss"]


def test_every_file_says_what_it_should(digits):
    folder = digits.folder
    assert sorted(entry.name for entry in folder.iterdir()) == [
        ".lock",
        "checkpoint.safetensors",
        "config.toml",
        "inputs.json",
        "log.jsonl",
        "model.safetensors",
        "resolved.toml",
        "result.json",
    ]
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert tuple(rows) == digits.history
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    keys = {"epoch", "loss", "accuracy", "clean", "certified", "lipschitz", "lr", "seconds"}
    assert all(row.keys() == keys for row in rows)
    assert all(row["lipschitz"] <= 1 for row in rows)
    assert json.loads((folder / "result.json").read_text()) == digits.result
    assert digits.result["versions"]["torch"] == torch.__version__


def test_a_run_comes_back_from_its_folder(digits):
    loaded = load_run(digits.folder)
    assert (loaded.config, loaded.inputs) == (digits.config, digits.inputs)
    assert loaded.history == digits.history
    x = digits.data().test.inputs
    assert torch.equal(loaded.model(x), digits.model(x))
    assert torch.equal(loaded.data().test.inputs, x)
    assert taut.load(digits.folder / "model.safetensors")(x).equal(digits.model(x))


def test_the_best_epoch_is_kept_and_nothing_after_patience(tmp_path):
    config = TrainConfig(**{**SMALL, "epochs": 60, "schedule": "constant"}, patience=2, radius=0.2)
    run = train(config, data=LabelledData(blobs(), blobs(seed=1), "blobs"))
    scores = [(row["certified"], row["clean"]) for row in run.history]
    best = scores.index(max(scores)) + 1
    assert run.result["best_epoch"] == best
    assert run.result["epochs"] == len(run.history) == best + 2 < 60
    held_out = run.data().validation
    assert held_out is not None
    found = taut.certify(run.model, held_out.inputs, labels=held_out.labels)
    assert found.certified_accuracy(0.2).item() == max(scores)[0]


def test_without_validation_the_last_weights_are_kept():
    run = train(TrainConfig(**SMALL, validation=0.0))
    assert run.result["best_epoch"] == 6
    assert run.data().validation is None
    assert {row["certified"] for row in run.history} == {None}
    assert run.result["train_rows"] == len(run.data().train)


def test_tables_are_measured_in_their_own_deviations():
    data = LabelledData(blobs(), blobs(seed=1), "blobs")
    run = train(TrainConfig(**{**SMALL, "hidden": (16,)}, radius=0.5), data=data)
    assert run.result["certified"] > 0.8
    prepared = run.data()
    x = prepared.train.inputs.double().numpy()
    assert_allclose(x.mean(0), 0, atol=1e-6)
    assert_allclose(x.std(0), 1, atol=1e-6)
    again = InputSpec.from_dict(json.loads(json.dumps(run.inputs.to_dict())))
    assert again == run.inputs
    assert torch.equal(again.apply(data.test.inputs), prepared.test.inputs)
    # Units do not matter: the same table in others gives the same network but for rounding.
    same = train(
        TrainConfig(**{**SMALL, "hidden": (16,)}, radius=0.5),
        data=LabelledData(blobs(spread=2.0**20), blobs(seed=1, spread=2.0**20), "blobs"),
    )
    assert same.result["certified"] == run.result["certified"]


def test_a_column_that_never_changes_is_only_shifted():
    held = blobs()
    held.inputs[:, 1] = 7.0
    with pytest.warns(TautWarning, match="flat: column 'b' is constant in the training rows"):
        prepared = prepare(TrainConfig(), LabelledData(held, held, "flat"))
    assert prepared.spec.spread[1] == 1.0
    assert (prepared.train.inputs[:, 1] == 0).all()
    held.inputs[:] = 7.0
    with pytest.raises(
        DataError, match="flat: at least one column must vary .*; all 3 are constant"
    ):
        prepare(TrainConfig(), LabelledData(held, held, "flat"))


def test_errors_about_columns_name_the_options_of_a_configuration(tmp_path):
    (tmp_path / "u.csv").write_text("a,b,c\n1,2,0\n2,3,1\n")
    with pytest.raises(ArgumentError, match="count from 0: 2, or -1, is the last"):
        train(TrainConfig(data=str(tmp_path / "u.csv")))


def test_the_offset_of_a_column_costs_no_digits():
    seconds = np.arange(300.0)
    inputs = np.stack([1.7e9 + seconds, np.full(300, 0.1)], 1)
    labels = (seconds >= 150).astype(np.int64)
    rows = LabelledSet(inputs, labels, ("no", "yes"), ("t", "same"), None, None, "stamps")
    with pytest.warns(TautWarning, match="column 'same'"):
        prepared = prepare(TrainConfig(validation=0.0), LabelledData(rows, rows, "stamps"))
    z = prepared.train.inputs.double().numpy()
    expected = (seconds - 149.5) / np.std(seconds)
    assert_allclose(z[:, 0], expected, rtol=2.0**-23)
    # The mean of 300 times 0.1 is not 0.1 in float64, and no reason to see a deviation.
    assert prepared.spec.spread[1] == 1.0 and (z[:, 1] == 0).all()
    assert len(np.unique(z[:, 0])) == 300


def test_inputs_of_another_shape_are_refused(digits):
    with pytest.raises(ArgumentError, match=r"must be \(n, 1, 8, 8\); got shape \(5, 64\)"):
        digits.inputs.apply(np.zeros((5, 64), np.float32))


def test_one_class_is_refused():
    held = blobs(labels=("only",))
    with pytest.raises(DataError, match="at least two classes to tell apart; got \\['only'\\]"):
        train(TrainConfig(**SMALL), data=LabelledData(held, held, "one"))


@pytest.mark.parametrize(
    "given",
    [
        {"norm": "linf", "radius": 0.05},
        {"norm": "linf", "arch": "dense"},
        {"norm": "linf", "arch": "ibp"},
        {"norm": "l1", "radius": 0.5},
        {"lipschitz": 7.0, "loss": "hinge"},
        {"loss": "hkr", "constraint": "spectral"},
        {"activation": "groupsort4", "dropout": 0.3},
        {"constraint": "none", "activation": "relu"},
        {"dtype": "float64", "optimizer": "aggmo"},
        {"hidden": ()},
    ],
    ids=lambda given: "-".join(map(str, given.values())),
)
def test_every_kind_has_a_proven_constant(given):
    run = train(TrainConfig(**{**SMALL, "epochs": 1, "hidden": (16,), **given}))
    bound = taut.bound_lipschitz(run.model, run.config.norm, run.inputs.shape).value
    assert run.result["lipschitz"] == pytest.approx(bound, rel=1e-9)
    if run.config.constraint != "none":
        assert bound <= (run.config.lipschitz or 0)
    dtype = torch.float64 if run.config.dtype == "float64" else torch.float32
    assert {p.dtype for p in run.model.parameters()} == {dtype}


def test_bfloat16_keeps_weights_and_proofs_in_float32():
    run = train(TrainConfig(**{**SMALL, "epochs": 1}, dtype="bfloat16"))
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.result["lipschitz"] <= 1


def test_adversarial_training_moves_inputs_inside_the_ball(monkeypatch):
    from taut.training import objective

    seen = []
    attack = objective.adversarial_batch

    def watched(model, x, labels, **arguments):
        moved = attack(model, x, labels, **arguments)
        seen.append((x, moved))
        return moved

    monkeypatch.setattr(objective, "adversarial_batch", watched)
    train(TrainConfig(**{**SMALL, "epochs": 1}, adversarial_radius=0.2, adversarial_steps=3))
    assert len(seen) == 11
    for x, moved in seen:
        length = (moved - x).double().flatten(1).norm(dim=1)
        assert 0 < length.max() <= 0.2 * (1 + 1e-6)
        assert moved.min() >= 0 and moved.max() <= 1


def test_random_state_and_threads_of_the_caller_are_restored():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        train(TrainConfig(**{**SMALL, "epochs": 1}, dropout=0.5))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert torch.equal(torch.rand(3), expected)


def test_equal_seeds_give_equal_weights_and_others_do_not():
    config = {**SMALL, "epochs": 1, "dropout": 0.2}
    runs = [train(TrainConfig(**config, seed=seed)) for seed in (3, 3, 4)]
    first, same, other = (list(run.model.parameters()) for run in runs)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_divergence_is_an_error_and_writes_no_result(tmp_path):
    config = TrainConfig(**{**SMALL, "lr": 1e30}, constraint="none", optimizer="sgd")
    with pytest.raises(NonFiniteError, match="train: the loss must stay finite; got .* in epoch 1"):
        train(config, tmp_path / "a")
    assert not (tmp_path / "a" / "result.json").exists()


def test_progress_counts_every_step_and_shows_certified_accuracy():
    told = []
    run = train(TrainConfig(**{**SMALL, "epochs": 2}), on_progress=told.append)
    steps = [(p.epoch, p.step) for p in told]
    assert steps == [(e, s) for e in (1, 2) for s in (*range(1, 12), 11)]
    assert told[-1].row == run.history[-1]
    assert told[0].row is None and told[12].row == run.history[0]


def test_tensorboard_gets_the_numbers_of_the_log(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = train(TrainConfig(**{**SMALL, "epochs": 2}), tmp_path / "a", tensorboard=True)
    events = EventAccumulator(str(tmp_path / "a" / "tensorboard"))
    events.Reload()
    found = [event.value for event in events.Scalars("certified")]
    assert_allclose(found, [row["certified"] for row in run.history], rtol=1e-6)


def test_tensorboard_needs_a_folder():
    with pytest.raises(ArgumentError, match="`tensorboard` needs a folder"):
        train(TrainConfig(**SMALL), tensorboard=True)


def test_unknown_architectures_and_devices_are_refused():
    with pytest.raises(ArgumentError, match="`arch` must be one of 'dense'"):
        train(TrainConfig(**SMALL, arch="transformer"))
    with pytest.raises(ArgumentError, match="`device` must be 'auto' or a device that torch finds"):
        train(TrainConfig(**SMALL, device="abacus"))


def test_an_architecture_can_be_added(monkeypatch):
    def straight(config, shape, outputs):
        return torch.nn.Sequential(torch.nn.Flatten(), taut.nn.OrthonormalLinear(64, outputs))

    monkeypatch.setitem(ARCHITECTURES, "straight", straight)
    run = train(TrainConfig(**{**SMALL, "epochs": 1}, arch="straight"))
    assert len(run.model) == 2 and run.result["lipschitz"] <= 1  # type: ignore[arg-type]
