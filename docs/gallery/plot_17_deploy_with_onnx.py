"""
Deploy with ONNX
================

A trained network leaves taut as plain layers: `taut.fold` gives an ordinary `torch.nn` model, and
`export_onnx` a file that onnxruntime runs anywhere. Predictions stay the same, and so do the
certificates.
"""

import tempfile
from pathlib import Path

import onnxruntime
import torch

import taut
from taut.export import export_onnx
from taut.plotting import COLOURS, Figure
from taut.training import TrainConfig, train

run = train(TrainConfig(data="digits", arch="conv", radius=0.5, hidden=(64,), epochs=5, seed=0))
plain = taut.fold(run.model)
print(plain)

# %%
# The file is compared with the network before it is written. Here again, on the test digits:

test = run.data().test
images = torch.as_tensor(test.inputs)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "digits.onnx"
    export_onnx(run.model, path, input_shape=(1, 8, 8), metadata={"norm": "l2"})
    print(f"{path.stat().st_size / 1024:.0f} KiB")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs = torch.as_tensor(session.run(None, {"input": images.numpy()})[0])

with torch.no_grad():
    differences = (outputs - run.model(images)).abs().amax(1)
print(f"largest difference of an output: {differences.max():.1e}")

# %%
# A certificate for float32 covers the roundoff of whichever runtime sums in whichever order. It costs
# almost nothing: the radii, in exact arithmetic and in float32.

radii = {
    name: taut.certify(run.model, images, arithmetic=name).radius for name in ("real", "float32")
}
same = outputs.argmax(1) == taut.certify(run.model, images, arithmetic="float32").prediction
print(f"same predictions: {int(same.sum())} of {len(images)}")


def paint(axes):
    lost = (radii["real"] - radii["float32"]) / radii["real"]
    axes.semilogy(radii["real"], lost, ".", color=COLOURS["blue"])
    axes.set(xlabel="certified radius, real arithmetic", ylabel="share lost to float32")


cost = Figure(paint, alt="Float32 certificates are shorter by less than a hundred-thousandth.")
