import re
import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.data import load_labelled
from taut.errors import ArgumentError, DtypeError
from taut.training import TrainConfig, from_toml, resolve, to_toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
positive = st.floats(1e-300, 1e300)
configs = st.builds(
    TrainConfig,
    data=texts,
    data_dir=st.none() | texts,
    label=st.none() | texts,
    norm=st.sampled_from(["l2", "linf"]),
    radius=st.none() | positive,
    lipschitz=st.none() | positive,
    hidden=st.none() | st.lists(st.integers(1, 5000), max_size=4).map(tuple),
    activation=texts,
    loss=st.sampled_from([None, "hinge", "hkr", "cross_entropy"]),
    lr=st.none() | positive,
    milestones=st.lists(st.integers(1, 500), max_size=4).map(tuple),
    warmup=st.floats(0, 1e6),
    seed=st.integers(0, 2**63 - 1),
    dropout=st.floats(0, 1, exclude_max=True),
    threads=st.none() | st.integers(1, 64),
)


@given(configs)
def test_a_configuration_comes_back_from_its_file(config):
    assert from_toml(to_toml(config)) == config


@given(configs)
def test_the_file_is_toml_with_the_fields_as_keys_in_order(config):
    held = tomllib.loads(to_toml(config))
    names = [f.name for f in fields(config) if getattr(config, f.name) is not None]
    assert list(held) == names


def test_a_whole_number_serves_as_a_real_one():
    assert from_toml("radius = 2") == TrainConfig(radius=2.0)
    assert type(from_toml("radius = 2").radius) is float


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("radios = 1.0", "every key must be a field of TrainConfig; got 'radios'. The nearest is"),
        ("learning_rate = 1.0", "got 'learning_rate'"),
        ("radios = 1.0", "'radius'"),
        ("radius = ", "the text must be TOML"),
        ('radius = "wide"', "`radius` must be of type float | None; got radius='wide'"),
        ("seed = 1.5", "`seed` must be of type int; got seed=1.5"),
        ("seed = true", "`seed` must be of type int; got seed=True"),
        ("radius = true", "`radius` must be of type float | None; got radius=True"),
        ("hidden = 3", "`hidden` must be of type tuple[int, ...] | None; got hidden=3"),
        ("hidden = [64, 0]", "`hidden` must be a whole number >= 1; got hidden=0"),
        ("data = 3", "`data` must be of type str; got data=3"),
        ("radius = -1.0", "`radius` must be finite and positive; got radius=-1.0"),
        ("radius = nan", "`radius` must be finite and positive; got radius=nan"),
        ("lr = inf", "`lr` must be finite and positive; got lr=inf"),
        ("dropout = 1.0", "`dropout` must lie in [0, 1); got dropout=1.0"),
        ("warmup = nan", "`warmup` must be finite and >= 0; got warmup=nan"),
        ("epochs = 0", "`epochs` must be a whole number >= 1; got epochs=0"),
        ("seed = -1", "`seed` must be a whole number >= 0; got seed=-1"),
        ('norm = "l3"', "`norm` must be one of 'l1', 'l2', 'linf'; got norm='l3'"),
        ('optimizer = "lion"', "`optimizer` must be one of 'adam', 'sgd', 'aggmo'"),
        ('schedule = "sine"', "`schedule` must be one of 'cosine', 'step', 'constant'"),
        ('loss = "mse"', "`loss` must be one of 'cross_entropy', 'hinge', 'hkr'"),
        ('dtype = "int8"', "`dtype` must be one of 'float32', 'float64', 'bfloat16'"),
        ("patience = 3\nvalidation = 0.0", "`patience` needs validation rows"),
        ('adversarial_radius = 1.0\nnorm = "l1"', "`adversarial_radius` must be 0 in L1"),
    ],
)
def test_wrong_values_are_refused(text, sentence):
    with pytest.raises(ArgumentError, match=re.escape(sentence)):
        from_toml(text)


def test_weights_of_16_bits_are_refused():
    with pytest.raises(DtypeError, match="`dtype` must keep weights in 32 or 64 bits"):
        TrainConfig(dtype="float16")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "norm, arch", [("l1", None), ("l2", None), ("linf", None), ("linf", "dense"), ("linf", "ibp")]
)
def test_resolving_again_changes_nothing(norm, arch):
    data = load_labelled("digits")
    found = resolve(TrainConfig(norm=norm, arch=arch), data)
    open_fields = {f.name for f in fields(found) if getattr(found, f.name) is None}
    of_files = {"data_dir", "label", "test", "names", "columns", "drop", "categorical", "tolerance"}
    assert open_fields == {*of_files, "threads"}
    assert resolve(found, data) == found
    assert from_toml(to_toml(found)) == found


def test_given_fields_are_kept():
    said = {
        "radius": 0.3,
        "lipschitz": 5.0,
        "hidden": (7,),
        "constraint": "bjorck",
        "loss": "hkr",
        "margin": 0.25,
        "lr": 0.5,
        "batch_size": 9,
        "epochs": 2,
    }
    config = TrainConfig(**said)
    found = resolve(config, load_labelled("digits"))
    assert {name: getattr(found, name) for name in said} == said
    assert resolve(replace(config, hidden=()), load_labelled("digits")).hidden == ()


def test_the_margin_is_what_the_radius_needs():
    data = load_labelled("digits")
    for norm, factor in (("l1", 1.0), ("l2", 2**0.5), ("linf", 2.0)):
        config = TrainConfig(norm=norm, radius=0.7, lipschitz=3.0, loss="cross_entropy")
        assert resolve(config, data).margin == pytest.approx(factor * 3.0 * 0.7, rel=1e-12)
