"""`taut export`: a saved network for other runtimes."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from taut.cli.parameters import FILE, input_shape_option, network_argument, network_file

if TYPE_CHECKING:
    from taut.training import InputSpec


@click.command()
@network_argument
@click.option(
    "--to",
    "target",
    type=click.Choice(["onnx", "pt2", "relu-onnx", "safetensors"]),
    required=True,
    help="Format: onnx; pt2 (a torch.export program); relu-onnx (ONNX with ReLU as the only "
    "activation, for verifiers of ReLU networks); or safetensors (a taut file of plain layers).",
)
@click.option("--out", type=FILE, required=True, help="Output file.")
@click.option(
    "--weights",
    type=click.Choice(["float32", "bfloat16", "int8"]),
    default="float32",
    help="Type to which the weights are rounded. Only a safetensors file stores them in this type; the "
    "other formats store the rounded values in the type of the network. The constant is proven for the "
    "rounded weights.",
)
@input_shape_option
def export(
    path: Path, target: str, out: Path, weights: Any, input_shape: tuple[int, ...] | None
) -> None:
    """Convert a saved network for another runtime.

    PATH is a file written by taut.save, or the folder of a taut train run. Constrained layers become
    plain layers with the same weights, the batch dimension is dynamic, and the outputs of the
    exported network are compared with those of the original before the file is written.

    `taut train` standardises the columns of a table. The exported network includes that step, in float64 if
    float32 is not precise enough; its inputs are listed in the metadata of the file. Numbers are given in
    their own units, dates in days since 1970-01-01, times in hours. A categorical column has one
    input per category, which is 1 for the category of the row and 0 for the others; a column with two
    categories has only one of these inputs. For a missing number, give the centre of its column,
    which is in the metadata, and set the input called "COLUMN missing" to 1.

    The metadata also contain the names of the classes and, for a run, its certificate: the Lipschitz
    constant of the difference between each pair of logits, with inputs measured in standard deviations (or
    tolerances) of the columns, so that any runtime can turn margins into certified radii.

    \b
    Examples:
      taut export net.safetensors --to onnx --out net.onnx
      taut export runs/a --to onnx --out a.onnx
      taut export image.safetensors --to pt2 --out image.pt2 --input-shape 1,28,28
    """
    from taut.cli.output import make_folders
    from taut.export import (
        describe_certificate,
        export_onnx,
        export_pt2,
        fold,
        open_file,
        round_weights,
        save,
        standardise,
    )

    saved = open_file(network_file(path))
    shape = input_shape or saved.input_shape
    model, said = fold(saved.model), None
    more: dict[str, Any] = {}
    if (spec := _spec_of(path)) is not None:
        more = {"metadata": {"classes": spec.classes, "columns": spec.columns}}
        norm, units = saved.bound.norm or "l2", None
        if spec.shift and path.is_dir():
            spec = spec.with_indicators()
            model, shape = standardise(model, spec.shift, spec.spread), spec.shape
            dtype = str(model[0].weight.dtype).removeprefix("torch.")
            units, named = spec.certified_units(), spec.to_dict()["tolerance"] or spec.spread
            more["metadata"] |= {"tolerance": named, "norm": str(norm), "centre": spec.shift}
            what = "tolerances" if spec.tolerance else "standard deviations"
            said = (
                f"It scales its inputs: give it the {len(spec.shift)} features of the table, as "
                f"{dtype}, in their own units. The certificate in its metadata is in {what}."
            )
            if "free" in named:
                said += " It holds free categories fixed; taut predict on the folder frees them."
        elif spec.shift:
            said = (
                "WARNING: it expects columns standardised by the shift and spread in "
                f"{path.parent / 'inputs.json'}. Export the folder {path.parent} to include that."
            )
        round_weights(model, weights)
        certificate = describe_certificate(model, norm, spec.shape, units)
        more["metadata"]["certificate"] = certificate
    else:
        round_weights(model, weights)
    make_folders(out)
    if target == "pt2":
        export_pt2(model, out, shape, **more)
    elif target == "safetensors":
        stored = None if weights == "float32" else weights
        norms = {"norm": saved.bound.norm, "output_norm": saved.output_norm}
        save(model, out, fold=True, weights=stored, input_shape=shape, **norms, **more)
    else:
        export_onnx(model, out, shape, relu=target == "relu-onnx", **more)
    checked = "its constant proven again" if target == "safetensors" else "its outputs compared"
    click.echo(f"Wrote {out}, {checked}.")
    if said:
        click.echo(said)


def _spec_of(path: Path) -> "InputSpec | None":
    """The inputs of the network of a run, for its folder or its file; None for other networks."""
    from taut.training import RunFolder

    folder = RunFolder(path if path.is_dir() else path.parent)
    own = path.is_dir() or path.name == folder.model_file.name
    return folder.spec() if own and folder.inputs_file.exists() else None
