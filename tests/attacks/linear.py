"""Linear classifiers, whose closest adversarial examples are known in closed form."""

import torch
from torch import nn


def linear(classes=3, size=6, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Linear(size, classes).to(dtype)


def samples(model, n=60, seed=1):
    """Inputs and the labels that the model gives them."""
    generator = torch.Generator().manual_seed(seed)
    weight = next(model.parameters())
    x = torch.randn(n, weight.shape[1], dtype=weight.dtype, generator=generator)
    return x, predicted(model, x)


def predicted(model, x):
    with torch.no_grad():
        logits = model(x)
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)


def exact_distance(model, x, labels, norm):
    r"""$\min_i m_i / \|w_t - w_i\|_q$, without limits on the data."""
    weight, bias = model.weight.detach().double(), model.bias.detach().double()
    if len(weight) == 1:
        weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
    logits = x.double() @ weight.T + bias
    lead = logits.gather(1, labels[:, None]) - logits
    q = 1 if norm == "linf" else 2
    slopes = torch.linalg.vector_norm(weight[labels][:, None] - weight, q, dim=2)
    return (lead / slopes).scatter(1, labels[:, None], torch.inf).amin(1)
