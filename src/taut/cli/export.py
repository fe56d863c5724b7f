"""`taut export`: a saved network for other runtimes."""

from pathlib import Path

import click

from taut.cli.audit import ShapeType, network_file

__all__ = ["export"]


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--to",
    "target",
    type=click.Choice(["onnx", "pt2", "relu-onnx", "safetensors"]),
    required=True,
    help="ONNX; a torch.export program; ONNX with ReLU as its only activation, for verifiers; or "
    "a taut file of plain layers.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write.",
)
@click.option(
    "--input-shape",
    type=ShapeType(),
    help="The shape of one input, like 1,28,28.  [default: as saved, or the first layer's]",
)
def export(path: Path, target: str, out: Path, input_shape: tuple[int, ...] | None) -> None:
    """Write a saved network for another runtime.

    PATH is a file written by taut.save, or the folder of a run of taut train. Constrained layers
    become plain ones of the same weights, batches may be of any size, and the result is run and
    compared with the network before it gets its name.

    \b
    Example:
      taut export net.safetensors --to onnx --out net.onnx
      taut export runs/a --to onnx --out a.onnx
      taut export image.safetensors --to pt2 --out image.pt2 --input-shape 1,28,28
    """
    from taut.export import export_onnx, export_pt2, open_file, save

    saved = open_file(network_file(path))
    shape = input_shape or saved.input_shape
    if target == "pt2":
        export_pt2(saved.model, out, shape)
    elif target == "safetensors":
        norms = {"norm": saved.bound.norm, "output_norm": saved.output_norm}
        save(saved.model, out, fold=True, input_shape=shape, **norms)
    else:
        export_onnx(saved.model, out, shape, relu=target == "relu-onnx")
    checked = "its constant proven again" if target == "safetensors" else "its outputs compared"
    click.echo(f"Wrote {out}, {checked}.")
