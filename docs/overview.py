"""Draws docs/images/overview.png, the picture of the README: python docs/overview.py, about two minutes."""

from pathlib import Path

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

import taut
from taut.plotting import COLOURS, STYLE
from taut.report.demo_run import run_demo

OUT = Path(__file__).parent / "images" / "overview.png"
SHIFTS = (0.0, 0.25, 0.5, 0.75, 1.0)


def draw_critics(axes, result) -> None:
    x = result.task.points.squeeze(-1)
    axes.plot(x, result.task.problem.potential(result.task.points), color="#c8ccd1", lw=7)
    styles = {"relu": ("ReLU", COLOURS["vermilion"]), "maxmin": ("MaxMin", COLOURS["blue"])}
    for critic in result.critics:
        if critic.activation in styles:
            name, colour = styles[critic.activation]
            found = critic.fit.estimate.value
            axes.plot(x, critic.values, color=colour, label=f"{name}: distance {found:.2f}")
    axes.set(title="Two 1-Lipschitz critics, true distance 1", xlabel="x", ylabel="f(x)")
    axes.legend(loc="upper center")


def draw_accuracy(axes, digits) -> None:
    shown = digits.attacked.certificates
    radii = torch.linspace(0, 1.1, 300, dtype=torch.float64)
    axes.plot(radii, 100 * shown.certified_accuracy(radii), color=COLOURS["blue"], label="proven")
    attacked = [0.0, *digits.attacked.radii]
    shares = [100 * digits.attacked.accuracy(r, "pgd") for r in attacked]
    axes.plot(attacked, shares, "o", color=COLOURS["vermilion"], label="under PGD attack")
    axes.set(title="Digits: accuracy by perturbation", xlabel="L2 radius", ylabel="% correct")
    axes.set(xlim=(0, 1.1), ylim=(0, 100))
    axes.legend(loc="lower left")


def draw_drift(axes) -> None:
    random = torch.Generator().manual_seed(0)
    reference = torch.rand(4000, 2, generator=random)
    for i, shift in enumerate(SHIFTS):
        batch = torch.rand(4000, 2, generator=random) + torch.tensor([shift, 0.0])
        result = taut.wasserstein(reference, batch, seed=0)
        low, high = result.lower.value, result.upper.value
        label = "95 % bounds" if i == 0 else None
        axes.plot([shift, shift], [low, high], color=COLOURS["blue"], lw=6, alpha=0.45, label=label)
        axes.plot(shift, result.estimate.value, "o", color=COLOURS["blue"])
    axes.plot(SHIFTS, SHIFTS, color="#555555", lw=1, ls="--", label="true distance", zorder=0)
    axes.set(title="How far did the data move?", xlabel="shift of the data", ylabel="Wasserstein-1")
    axes.legend(loc="upper left")


def main() -> None:
    run = run_demo(seed=0)
    with rc_context(STYLE):
        figure = Figure(figsize=(11.5, 3.1), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        draw_critics(left, run.tasks[0])
        draw_accuracy(middle, run.digits)
        draw_drift(right)
        figure.savefig(OUT, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    main()
