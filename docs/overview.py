"""Draws the pictures of the README and of the documentation: python docs/overview.py, about a minute."""

from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

from taut.plotting import COLOURS, STYLE
from taut.report.demo import paint_drift
from taut.report.demo_run import run_demo

IMAGES = Path(__file__).parent / "images"


def draw_critics(axes, result) -> None:
    x = result.task.points.squeeze(-1)
    best = result.task.problem.potential(result.task.points)
    axes.plot(x, best, color="#c8ccd1", lw=7, label="best possible")
    styles = {"relu": ("ReLU", COLOURS["vermilion"]), "maxmin": ("MaxMin", COLOURS["blue"])}
    for critic in result.critics:
        if critic.activation in styles:
            name, colour = styles[critic.activation]
            found = critic.fit.estimate.value
            axes.plot(x, critic.values, color=colour, label=f"{name}: distance {found:.2f}")
    axes.set(title="1-Lipschitz critics, true distance 1", xlabel="x", ylabel="f(x)")
    axes.set_ylim(-0.05, 1.9)  # leaves room for the legend
    axes.legend(loc="upper center")


def draw_accuracy(axes, digits) -> None:
    shown = digits.attacked.certificates
    radii = torch.linspace(0, 1.1, 300, dtype=torch.float64)
    proven = 100 * shown.certified_accuracy(radii)
    axes.plot(radii, proven, color=COLOURS["blue"], label="proven for every attack")
    attacked = [0.0, *digits.attacked.radii]
    shares = [100 * digits.attacked.accuracy(r, "pgd") for r in attacked]
    axes.plot(attacked, shares, "o", color=COLOURS["vermilion"], label="measured under PGD")
    axes.set(title="Digits: accuracy under perturbation", xlabel="L2 radius", ylabel="% correct")
    axes.set(xlim=(-0.03, 1.1), ylim=(-4, 103))  # nothing is cut off at the edges
    axes.legend(loc="lower left")


def main() -> None:
    run = run_demo(seed=0)
    with rc_context(STYLE):
        # Beside each other, and one above the other for phones.
        for name, size, shape in (
            ("overview", (10.5, 3.0), (1, 3)),
            ("narrow", (4.2, 9.0), (3, 1)),
        ):
            figure = Figure(figsize=size, layout="constrained")
            critics, accuracy, drift = figure.subplots(*shape)
            draw_critics(critics, run.tasks[0])
            draw_accuracy(accuracy, run.digits)
            paint_drift(drift, run.drift)
            drift.set(title="How far did the data move?")
            figure.savefig(IMAGES / f"{name}.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
