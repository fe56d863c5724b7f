"""The classifier and the examples of `taut certify` and `taut attack`."""

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import (
    DATASET,
    POSITIVE,
    data_dir_option,
    json_option,
    network_argument,
    option_group,
    radius_norm_option,
    threads_option,
)
from taut.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from taut.data import LabelledSet
    from taut.evaluation import EvaluatedClassifier
    from taut.training import Examples, TrainedRun

# PATH, and the options for the classifier, the examples and the radii.
classifier_options = option_group(
    network_argument,
    radius_norm_option,
    click.option(
        "--radius",
        "radii",
        type=POSITIVE,
        multiple=True,
        help="Radius to evaluate; repeatable.  [default: multiples of the target radius, if there is one]",
    ),
    click.option(
        "--data",
        type=DATASET,
        help="Dataset to evaluate: a name or path, as in taut train.  [default: the test data of the "
        "run]",
    ),
    data_dir_option,
    click.option(
        "--label",
        help="Label column of --data, if it is a table: a name, or a zero-based index (-1 is the "
        "last column).  [default: the label column of the training run]",
    ),
    threads_option,
    json_option,
)


@dataclass(frozen=True, eq=False)
class ClassifierInput:
    """A classifier and its examples."""

    classifier: "EvaluatedClassifier"  # the classifier and its examples
    run: "TrainedRun | None" = None  # the training run; None for a network from a file
    radius: float | None = None  # target radius of the training run; None without one


def read_classifier(options: dict[str, Any]) -> ClassifierInput:
    """Reads the classifier and its examples."""
    import torch

    torch.set_num_threads(options["threads"])
    if options["label"] is not None and options["data"] is None:
        raise click.UsageError("--label is a column of --data: give both, or neither.")
    return _from_run(options) if options["path"].is_dir() else _from_file(options)


def _from_run(options: dict[str, Any]) -> ClassifierInput:
    from taut.evaluation import EvaluatedClassifier
    from taut.norms import as_norm
    from taut.training import load_run

    run, source = load_run(options["path"]), options["data"]
    norm = as_norm(options["norm"] or run.config.norm)
    radius = run.config.radius if norm.name == run.config.norm else None
    if source is None:
        config = run.config
        if options["data_dir"] is not None:
            config = replace(config, data_dir=options["data_dir"])
        classifier = EvaluatedClassifier.from_run(replace(run, config=config), norm)
    else:
        rows = _read_run_examples(run, options)
        examples = _to_examples(run.model, run.inputs.apply(rows.inputs), rows)
        name, rounded = Path(source).name, bool(run.inputs.shift)
        classifier = EvaluatedClassifier(name, run.model, run.inputs, examples, norm, rounded)
    return ClassifierInput(classifier, run, radius)


def _from_file(options: dict[str, Any]) -> ClassifierInput:
    import torch

    from taut.data import read_labelled
    from taut.evaluation import EvaluatedClassifier
    from taut.export import open_file
    from taut.norms import as_norm
    from taut.training import InputSpec

    source = options["data"]
    if source is None:
        raise click.UsageError("a network from a file needs --data.")
    saved = open_file(options["path"])
    assert saved.bound.norm is not None
    norm = as_norm(options["norm"] or saved.bound.norm)
    rows = read_labelled(source, data_dir=options["data_dir"], label=options["label"])
    inputs = torch.as_tensor(rows.inputs)
    shape = tuple(saved.input_shape or inputs.shape[1:])
    if inputs[0].numel() != prod(shape):
        rule = (
            f"each input must have {prod(shape)} numbers, of shape {shape}, as the network expects"
        )
        raise DataError(f"data: {source}", rule=rule, got=str(tuple(inputs.shape[1:])))
    # Flat rows may be images, and images flat rows.
    inputs, model = inputs.reshape(-1, *shape), saved.model.eval()
    with torch.no_grad():
        outputs = model(_to_examples(model, inputs[:1], rows).inputs).shape[-1]
    rows = _label_by_output(rows, outputs)
    examples = _to_examples(model, inputs, rows)
    spec = InputSpec(shape=shape, classes=rows.classes, low=rows.low, high=rows.high)
    rounded = inputs.dtype != examples.inputs.dtype
    return ClassifierInput(
        EvaluatedClassifier(Path(source).name, model, spec, examples, norm, rounded)
    )


def _read_run_examples(run: "TrainedRun", options: dict[str, Any]) -> "LabelledSet":
    """Reads other examples for a run, with its columns and classes."""
    from taut.data import detect_format, read_matching

    source, spec, label = options["data"], run.inputs, options["label"]
    path = Path(source).expanduser()
    if path.is_file() and detect_format(path) in ("text", "parquet"):
        label = label or run.config.label
    where = {"data_dir": options["data_dir"], "label": label, "encoding": spec.encoding}
    rows = read_matching(
        source, columns=spec.columns, classes=spec.classes, names=names_for(run, source), **where
    )
    if rows.inputs.shape[1:] != spec.shape:
        raise DataError(
            f"data: {source}",
            rule=f"each input must be {_shape_text(spec.shape)}, as in the training of {options['path']}",
            got=_shape_text(rows.inputs.shape[1:]),
            remedy="Give data of the same kind as its own, or leave out --data for its test examples.",
        )
    return rows


def names_for(run: "TrainedRun", source: str) -> list[str]:
    """Names of the columns of a table without a header, as the run knows them.

    It may have all columns of the training table, all but the label, or just those that are used.
    """
    from taut.data import ColumnSource, open_source, parse_columns

    path, spec = Path(source).expanduser(), run.inputs
    if not spec.columns or not path.is_file():
        return []
    opened = open_source(path)
    if not isinstance(opened, ColumnSource) or opened.names:
        return []
    all_names = [str(name) for name in parse_columns(run.config.names)] if run.config.names else []
    used = spec.columns if spec.encoding is None else [c.name for c in spec.encoding.used]
    for names in (all_names, [name for name in all_names if name != run.config.label], list(used)):
        if len(names) == opened.width:
            return names
    return []


def _shape_text(shape: tuple[int, ...]) -> str:
    sizes = " x ".join(map(str, shape))
    return f"an image of {sizes}" if len(shape) == 3 else f"a row of {sizes} numbers"


def _label_by_output(rows: "LabelledSet", outputs: int) -> "LabelledSet":
    """Turns labels into output indices, for a network without class names.

    Labels 0, 1, ... are output indices, even where some do not occur; other labels are taken in
    their order, one for each output.
    """
    from taut.data import list_some

    numbers = tuple(map(str, range(outputs)))
    if set(rows.classes) <= set(numbers):
        return rows.with_classes(numbers)
    if len(rows.classes) != outputs:
        rule = "there must be one class for each output of the network, or labels from 0 to "
        rule += str(outputs - 1)
        got = f"{len(rows.classes)} classes, {list_some(rows.classes)}"
        remedy = "Use the folder of a taut train run instead: it stores the class names."
        raise DataError(f"data: {rows.source}", rule=rule, got=got, remedy=remedy)
    return rows


def _to_examples(model: "nn.Module", inputs: "Tensor", rows: "LabelledSet") -> "Examples":
    """Examples on the device of the network's weights, in their dtype."""
    import torch

    from taut.training import Examples

    weight = next(model.parameters(), inputs)
    return Examples(inputs, torch.as_tensor(rows.labels)).to(weight.device, weight.dtype)
