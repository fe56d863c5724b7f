"""What `taut certify` and `taut attack` share: their options, and whom these speak of."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.wasserstein import Finite

if TYPE_CHECKING:
    from taut.lab.robustness import Subject
    from taut.training import Examples, InputSpec, TrainedRun

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
    click.option("--label", help="The label column of --data, where that is a table."),
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

    from taut.export import open_file
    from taut.lab.robustness import Subject, subject_of
    from taut.norms import as_norm
    from taut.training import InputSpec, load_run

    torch.set_num_threads(options["threads"])
    path, source = options["path"], options["data"]
    if path.is_dir():
        run = load_run(path)
        norm = as_norm(options["norm"] or run.config.norm)
        radius = run.config.radius if norm.name == run.config.norm else None
        if source is None:
            return Chosen(subject_of(_at(run, options["data_dir"]), norm), run, radius)
        held = next(run.model.parameters())
        examples = _examples(options, run.inputs).to(held.device, held.dtype)
        return Chosen(
            Subject(Path(source).name, run.model, run.inputs, examples, norm), run, radius
        )
    if source is None:
        raise click.UsageError("a network from a file needs --data: taut train keeps its own.")
    saved = open_file(path)
    assert saved.bound.norm is not None
    norm = as_norm(options["norm"]) if options["norm"] else saved.bound.norm
    rows, classes, limits = _read(options, None)
    shape = saved.input_shape or tuple(rows.inputs.shape[1:])
    held = next(saved.model.parameters(), rows.inputs)
    examples = rows.to(held.device, held.dtype)
    examples = type(rows)(examples.inputs.reshape(-1, *shape), examples.labels)
    spec = InputSpec(shape=tuple(shape), classes=classes, low=limits[0], high=limits[1])
    return Chosen(Subject(Path(source).name, saved.model.eval(), spec, examples, norm), None, None)


def _at(run: "TrainedRun", data_dir: str | None) -> "TrainedRun":
    """The run with its data looked for elsewhere, if that was asked for."""
    from dataclasses import replace

    if data_dir is None:
        return run
    return replace(run, config=replace(run.config, data_dir=data_dir))


def _examples(options: dict[str, Any], spec: "InputSpec") -> "Examples":
    """Other examples, with the numbers that the run gave to its classes."""
    import torch

    from taut.errors import DataError

    rows, names, _ = _read(options, list(spec.columns) or None)
    unknown = [name for name in names if name not in spec.classes]
    if unknown:
        raise DataError(
            f"data: {options['data']}: every class must be one that the network knows "
            f"({', '.join(spec.classes[:5])} ...); got {unknown[0]!r}."
        )
    numbers = torch.tensor([spec.classes.index(name) for name in names])
    return type(rows)(spec.apply(rows.inputs), numbers[rows.labels])


def _read(
    options: dict[str, Any], columns: list[str] | None
) -> tuple["Examples", tuple[str, ...], tuple[float | None, float | None]]:
    """All rows of a file in their order, or the test part of data that has one."""
    import torch

    from taut.data import load_labelled
    from taut.errors import ArgumentError
    from taut.training import Examples

    source, label = options["data"], options["label"]
    given: dict[str, Any] = {"data_dir": options["data_dir"], "label": label}
    if columns is not None and Path(source).is_file():
        given["columns"] = columns
    try:
        # A file as its own test part is read whole, instead of split.
        part = load_labelled(source, test=source, **given).test
    except ArgumentError:
        part = load_labelled(source, **given).test
    inputs, labels = torch.as_tensor(part.inputs), torch.as_tensor(part.labels)
    return Examples(inputs, labels), tuple(part.classes), (part.low, part.high)
