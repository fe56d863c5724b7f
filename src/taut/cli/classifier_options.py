"""What `taut certify` and `taut attack` share: their options, and whom these speak of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.wasserstein import Finite

if TYPE_CHECKING:
    from torch import Tensor, nn

    from taut.data import LabelledSet
    from taut.lab.robustness import Subject
    from taut.training import Examples, TrainedRun

__all__ = ["Chosen", "choose", "classifier_options", "data_dir_option", "threads_option"]

threads_option = click.option(
    "--threads", type=click.IntRange(min=1), default=1, show_default=True, help="CPU threads."
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Where MNIST and its like are kept.  [env: TAUT_DATA]",
)
_OPTIONS = (
    click.argument("path", type=click.Path(exists=True, path_type=Path)),
    click.option(
        "--norm", type=click.Choice(["l1", "l2", "linf"]), help="Of radii.  [default: as trained]"
    ),
    click.option(
        "--radius",
        "radii",
        type=Finite(0, min_open=True),
        multiple=True,
        help="How far; may be given several times.  [default: around the one trained for]",
    ),
    click.option(
        "--data",
        help="Other examples: a name or a path as for taut train.  [default: its test examples]",
    ),
    data_dir_option,
    click.option(
        "--label",
        help="The label column of --data, where that is a table: a name, or a position from 0 (-1 "
        "is the last).  [default: as trained]",
    ),
    threads_option,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object, nothing else."),
)


def classifier_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds PATH and the options that say which classifier, which examples, which radii."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, eq=False)
class Chosen:
    """Whom the options speak of.

    Attributes:
        subject: the classifier and its examples.
        run: how it was trained; None for a network from a file.
        radius: what it was trained for; None where that is not known.
    """

    subject: "Subject"
    run: "TrainedRun | None"
    radius: float | None


def choose(options: dict[str, Any]) -> Chosen:
    """Reads the classifier and its examples.

    Raises:
        ArgumentError: PATH is neither a run nor a network, or the data does not fit it.
    """
    import torch

    from taut.data import read_labelled
    from taut.export import open_file
    from taut.lab.robustness import Subject, subject_of
    from taut.norms import as_norm
    from taut.training import InputSpec, load_run

    torch.set_num_threads(options["threads"])
    path, source = options["path"], options["data"]
    if options["label"] is not None and source is None:
        raise click.UsageError("--label names a column of --data: give both, or neither.")
    if path.is_dir():
        run = load_run(path)
        norm = as_norm(options["norm"] or run.config.norm)
        radius = run.config.radius if norm.name == run.config.norm else None
        if source is None:
            return Chosen(subject_of(_at(run, options["data_dir"]), norm), run, radius)
        rows = _read_for(run, options)
        examples = _on(run.model, run.inputs.apply(rows.inputs), rows)
        name, rounded = Path(source).name, bool(run.inputs.shift)
        subject = Subject(name, run.model, run.inputs, examples, norm, rounded)
        return Chosen(subject, run, radius)
    if source is None:
        raise click.UsageError("a network from a file needs --data: taut train keeps its own.")
    saved = open_file(path)
    assert saved.bound.norm is not None
    norm = as_norm(options["norm"]) if options["norm"] else saved.bound.norm
    rows = read_labelled(source, data_dir=options["data_dir"], label=options["label"])
    shape = tuple(saved.input_shape or rows.inputs.shape[1:])
    inputs = _in_shape(torch.as_tensor(rows.inputs), shape, source)
    model = saved.model.eval()
    rows = _by_output(rows, _num_outputs(model, _on(model, inputs[:1], rows).inputs))
    examples = _on(model, inputs, rows)
    spec = InputSpec(shape=shape, classes=rows.classes, low=rows.low, high=rows.high)
    rounded = inputs.dtype != examples.inputs.dtype
    subject = Subject(Path(source).name, model, spec, examples, norm, rounded)
    return Chosen(subject, None, None)


def _at(run: "TrainedRun", data_dir: str | None) -> "TrainedRun":
    """The run with its data looked for elsewhere, if that was asked for."""
    from dataclasses import replace

    if data_dir is None:
        return run
    return replace(run, config=replace(run.config, data_dir=data_dir))


def _read_for(run: "TrainedRun", options: dict[str, Any]) -> "LabelledSet":
    """Other examples for a run: its columns by their names, its classes by their numbers."""
    from taut.data.formats import kind_of
    from taut.data.load import read_alike
    from taut.errors import DataError

    source, spec, label = options["data"], run.inputs, options["label"]
    path = Path(source).expanduser()
    if path.is_file() and kind_of(path) in ("text", "parquet"):
        label = label or run.config.label
    rows = read_alike(
        source,
        data_dir=options["data_dir"],
        label=label,
        columns=spec.columns,
        classes=spec.classes,
    )
    if rows.inputs.shape[1:] != spec.shape:
        raise DataError(
            f"data: {source}: an input must be as {options['path']} was trained on, "
            f"{_what(spec.shape)}; got {_what(rows.inputs.shape[1:])}. Give data of the same kind "
            "as its own, or leave out --data for its test examples."
        )
    return rows


def _what(shape: tuple[int, ...]) -> str:
    sizes = " x ".join(map(str, shape))
    return f"an image of {sizes}" if len(shape) == 3 else f"a row of {sizes} numbers"


def _by_output(rows: "LabelledSet", outputs: int) -> "LabelledSet":
    """Rows numbered as the outputs of a network are that does not know what its classes are called.

    Labels that count from 0 are numbers of outputs, even where some do not occur; others are taken
    in their order, one for each output.
    """
    from taut.data.columns import list_some
    from taut.errors import DataError

    numbers = tuple(map(str, range(outputs)))
    if set(rows.classes) <= set(numbers):
        return rows.with_classes(numbers)
    if len(rows.classes) != outputs:
        raise DataError(
            f"data: {rows.source}: there must be one class for each output of the network, or labels "
            f"from 0 to {outputs - 1}; got {len(rows.classes)} classes, {list_some(rows.classes)}. "
            "A run of taut train knows the names of its classes: give its folder."
        )
    return rows


def _num_outputs(model: "nn.Module", one: "Tensor") -> int:
    import torch

    with torch.no_grad():
        return model(one).shape[-1]


def _in_shape(inputs: "Tensor", shape: tuple[int, ...], source: str) -> "Tensor":
    """Inputs as the network takes them; flat rows may be images, and images flat rows."""
    from math import prod

    from taut.errors import DataError

    if inputs[0].numel() != prod(shape):
        raise DataError(
            f"data: {source}: an input must have the {prod(shape)} numbers that the network takes, "
            f"of shape {shape}; got {tuple(inputs.shape[1:])}."
        )
    return inputs.reshape(-1, *shape)


def _on(model: "nn.Module", inputs: "Tensor", rows: "LabelledSet") -> "Examples":
    """Examples where the weights of the network are, in their dtype."""
    import torch

    from taut.training import Examples

    held = next(model.parameters(), inputs)
    return Examples(inputs, torch.as_tensor(rows.labels)).to(held.device, held.dtype)
