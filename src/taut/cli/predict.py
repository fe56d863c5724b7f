"""`taut predict`: predictions with certified radii for rows without labels."""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.classifier_input import names_for
from taut.cli.parameters import (
    COUNT,
    FILE,
    arithmetic_option,
    network_argument,
    radius_norm_option,
    threads_option,
)
from taut.cli.prediction_output import check_format, open_output
from taut.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from taut.certificates import Certificates
    from taut.training import InputSpec


@click.command()
@network_argument
@click.argument("data", type=click.Path())
@click.option("--out", type=FILE, help="Output file.  [default: standard output]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="Output format.  [default: from the extension of --out, else csv]",
)
@radius_norm_option
@click.option(
    "--tolerance",
    metavar="TOLERANCES",
    help="Tolerances of the columns in their own units, such as pH=0.1,sulphur=2, or a TOML file; "
    "radii are then multiples of them.  [default: those of the training run]",
)
@arithmetic_option
@click.option("--batch-rows", type=COUNT, default=4096, help="Number of rows in memory at a time.")
@threads_option
def predict(path: Path, data: str, out: Path | None, kind: str | None, **options: Any) -> None:
    """Predict the class of each row, with its certified radius.

    PATH is the folder of a taut train run, or a safetensors file written by taut.save or taut export.
    DATA is a file or folder of rows to classify, which need no labels. The columns of a table are matched
    by name, in any order, and extra columns are ignored. A table without a header must have the columns
    in the order used in training.

    Rows are read, certified and written batch by batch. For each row, the output has the row number, the
    predicted class, the margin, the radius within which no perturbation changes the prediction, and whether
    that radius exceeds the target radius of the run (or 1, with --tolerance). With tolerances, radii are
    multiples of them: in linf, a radius above 1 means that the prediction holds even if every column
    changes by its tolerance at once.

    \b
    Examples:
      taut predict runs/wine june.csv --out june-predicted.csv
      taut predict runs/wine june.parquet --out june-predicted.parquet
      taut predict runs/wine june.csv --tolerance pH=0.1,sulphur=2 --format jsonl
    """
    import torch

    from taut.cli.output import progress, say

    written = check_format(out, kind)
    torch.set_num_threads(options["threads"])
    predictor = _Predictor(path, options)
    count, num_certified = 0, 0
    unseen: set[str] = set()
    batches = predictor.batches(data, options["batch_rows"])
    with progress(quiet=out is None) as bar, open_output(out, written) as write:
        for rows in batches:
            certificates = predictor(rows)
            if predictor.spec.encoding is not None:
                unseen.update(predictor.spec.encoding.unseen(rows))
            certified = certificates.radius > predictor.radius
            tensors = {
                "margin": certificates.margin,
                "radius": certificates.radius,
                "certified": certified,
            }
            write(
                {
                    "row": range(count, count + len(rows)),
                    "prediction": [
                        predictor.spec.classes[i] for i in certificates.prediction.tolist()
                    ],
                    **{name: tensor.tolist() for name, tensor in tensors.items()},
                }
            )
            count += len(rows)
            num_certified += int(certified.sum())
            bar("predicting", count, count, f"{count:,} rows")
    if unseen:
        names = ", ".join(sorted(unseen))
        text = "Some rows have values that did not occur in training, in columns"
        click.echo(f"{text}: {names}", err=True)
    if out is not None:
        say(f"{count:,} rows, {num_certified:,} certified within {predictor.statement}.")
        say(f"Predictions: {out}")


class _Predictor:
    """A network with its inputs, norm and target radius, from a run or a file."""

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        from dataclasses import replace

        from taut.export import open_file
        from taut.norms import as_norm
        from taut.report import NORM_NAMES, radius_unit
        from taut.training import InputSpec, feature_tolerances, load_run, parse_tolerances

        self.run = load_run(path) if path.is_dir() else None
        if self.run is not None:
            self.model: nn.Module = self.run.model
            self.spec: InputSpec = self.run.inputs
            norm, self.radius = self.run.config.norm, self.run.config.radius or 0.0
        else:
            saved = open_file(path)
            self.model, norm = saved.model.eval(), str(saved.bound.norm)
            self.spec = _spec_of_file(saved)
            norm = saved.metadata.get("norm", norm)
            self.radius = 1.0 if self.spec.tolerance else 0.0
        if options["tolerance"]:
            given = parse_tolerances(options["tolerance"])
            count = prod(self.spec.shape)
            tolerance = feature_tolerances(given, self.spec.columns, count, self.spec.encoding)
            self.spec = replace(self.spec, tolerance=tolerance)
            norm, self.radius = "linf", 1.0
        self.norm = as_norm(options["norm"] or norm)
        self.arithmetic = options["arithmetic"]
        unit = radius_unit(self.spec)
        self.statement = f"{NORM_NAMES[self.norm.name]} radius {self.radius:.4g}, {unit}"

    def __call__(self, rows: "np.ndarray") -> "Certificates":
        """Certificates of rows of the source."""
        import torch

        from taut.training import certify_inputs

        parameter = next(self.model.parameters(), torch.empty(0))
        shaped = rows.reshape(-1, *self.spec.shape)
        x = self.spec.apply(shaped) if self.spec.shift else torch.as_tensor(shaped)
        rounded = bool(self.spec.shift) or x.dtype != parameter.dtype
        given = x.to(parameter.device, parameter.dtype)
        return certify_inputs(
            self.model, self.spec, given, self.norm, None, self.arithmetic, rounded=rounded
        )

    def batches(self, data: str, batch_rows: int) -> "Iterator[np.ndarray]":
        """Yields the rows of a file in batches."""
        from taut.data import TableStream, list_some, open_source

        spec, names = self.spec, [] if self.run is None else names_for(self.run, data)
        source = open_source(data, names)
        columns = list(spec.columns) if spec.columns and source.names else None
        needed = columns if spec.encoding is None and columns else []
        if missing := [name for name in needed if name not in source.names]:
            rule = "must have the columns that the network is trained on"
            got = f"none called {list_some(missing)} among {list_some(source.names, 20)}"
            raise DataError(source.subject, rule=rule, got=got)
        if spec.encoding is not None and not source.names:
            used = len(spec.encoding.used)
            rule = f"a table without a header must have exactly {used} columns"
            remedy = "Add a header so that columns can be matched by name."
            raise DataError(source.subject, rule=rule, got=str(source.width), remedy=remedy)
        given: Any = {"columns": columns} if spec.encoding is None else {"encoding": spec.encoding}
        stream = TableStream(data, batch_rows=batch_rows, names=names, min_rows=1, **given)
        if stream.dim != prod(spec.shape):
            rule = f"each row must have {prod(spec.shape)} features, as the network expects"
            remedy = "Leave out the label, or add a header so that columns can be matched by name."
            raise DataError(f"data: {data}", rule=rule, got=str(stream.dim), remedy=remedy)
        return iter(stream)


def _spec_of_file(saved: Any) -> "InputSpec":
    """The inputs of a network from a file, from what `taut export` wrote about it."""
    import torch

    from taut.training import InputSpec

    shape = saved.input_shape
    if shape is None:
        raise click.UsageError("the network file must state the shape of its inputs.")
    parameter = next(saved.model.parameters(), torch.empty(0))
    with torch.no_grad():
        outputs = saved.model(parameter.new_zeros(1, *shape)).shape[-1]
    stated = saved.metadata
    classes = tuple(stated.get("classes", map(str, range(max(2, outputs)))))
    about = {"shape": shape, "classes": classes, "columns": stated.get("columns", [])}
    # Only the run stores the possible values of a "free" category. For a network file such a column is
    # treated as fixed (tolerance 0).
    tolerance = [0.0 if unit == "free" else unit for unit in stated.get("tolerance", [])]
    return InputSpec.from_dict(about | {"tolerance": tolerance})
