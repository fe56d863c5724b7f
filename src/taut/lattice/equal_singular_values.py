r"""Theorem 2: where a network keeps gradient norms, its singular values may as well be 1."""

import copy

import torch
from torch import Tensor, nn

from taut.errors import ArgumentError, check_positive
from taut.lattice.affine_maps import Affine, as_linear, take_apart
from taut.linalg import bound_spectral_norm, polar
from taut.nn import Abs, FullSort, GroupSort, MaxMin

# Linear on pieces, homogeneous, and 1-Lipschitz: what the theorem asks of an activation.
_ACTIVATIONS = (MaxMin, GroupSort, FullSort, Abs, nn.ReLU)


def unit_singular_values(network: nn.Module, points: Tensor, tol: float = 1e-6) -> nn.Sequential:
    r"""The same function with every singular value of every weight equal to 1.

    Each weight $W_i = U \Sigma V^\top$ becomes its polar factor $\tilde W_i = U V^\top$; biases stay.
    Let $\tilde f$ be the new network and $\tilde h_{i-1}$ what its layer $i$ receives.

    **Theorem.** Let $f$ be scalar, $\|W_i\|_2 \le 1$ for all $i$, and let $f$ and $\tilde f$ sort
    alike at $x$: the same permutations in all activations (for `Abs` the same signs, for `ReLU`
    the same units). If $\|\nabla f(x)\|_2 = 1$ then
    $\tilde f(x) = f(x)$ and $\nabla\tilde f(x) = \nabla f(x)$. If
    $\|\nabla f(x)\|_2 \ge 1 - \varepsilon$ then
    $$|\tilde f(x) - f(x)| \le \sqrt{2\varepsilon}\,\textstyle\sum_i \|\tilde h_{i-1}(x)\|_2 .$$

    *Proof.* Fix these permutations: both values are one expression in the weights. Let $v_i$ be
    the gradient of $f$ with respect to the output of layer $i$. No step backwards makes it longer,
    so $\|v_i\| \le 1$ and $\|v_i W_i\| \ge 1 - \varepsilon$. With $u = v_i U$ this says
    $\sum_j u_j^2 (1 - \sigma_j^2) \le 2\varepsilon$, hence
    $\|v_i (\tilde W_i - W_i)\|^2 = \sum_j u_j^2 (1 - \sigma_j)^2 \le 2\varepsilon$. Put the new
    weights into the expression from the first to the last: the $i$-th changes it by
    $v_i (\tilde W_i - W_i) \tilde h_{i-1}$. And if $\varepsilon = 0$, all
    $v_i \tilde W_i = v_i W_i$, so the gradients agree too. $\square$

    The paper states this without the clause on sorting, and then it is false: with
    $W_1 = \mathrm{diag}(1, 0)$ the network $\max(|z_1|, |z_2|)$, $z = W_1 x$, computes $|x_1|$, of
    gradient norm 1, and with $\tilde W_1 = I$ it computes $\max(|x_1|, |x_2|)$. What a weight had
    shrunk may decide a later comparison once it is large. So this function looks: it returns a
    network only if the bound above holds at all `points`.

    Args:
        network: a `Sequential` of linear layers (constrained ones with the weight they use now)
            and `MaxMin`, `GroupSort`, `FullSort`, `Abs` or `torch.nn.ReLU`, with one output.
        points: `(count, in)`, where the gradient norm is known to be 1 and equality is wanted.
        tol: how far a spectral norm may lie above 1, and a gradient norm below.

    Returns:
        A `Sequential` of `torch.nn.Linear` and the activations, all singular values 1 up to the
        rounding of its dtype. It equals `network`, up to the bound above, at `points` and wherever
        the theorem applies.

    Raises:
        ArgumentError: when a weight has norm above 1, a gradient is shorter than 1, or a
            comparison turns out otherwise in the new network.

    Example:
        >>> network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        >>> for layer, weight in zip(network, ([[1.0, 0.0], [0.0, 0.2]], [[1.0, 0.0]])):
        ...     layer.weight.data = torch.tensor(weight)
        >>> unit_singular_values(network, torch.randn(8, 2))[0].weight.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    subject = "unit_singular_values"
    check_positive(subject, "tol", tol)
    parts = take_apart(subject, network)
    _check_parts(subject, parts, points)
    dtype = next(part.weight.dtype for part in parts if isinstance(part, Affine))
    exact = nn.Sequential(
        *(as_linear(*p) if isinstance(p, Affine) else copy.deepcopy(p) for p in parts)
    ).double()
    layers = [layer for layer in exact if isinstance(layer, nn.Linear)]
    x = points.detach().to(layers[0].weight)
    product = _check_weights(subject, layers, tol)
    values, lengths = _values_and_gradient_norms(exact, x)
    _check_gradients(subject, lengths, tol)
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(polar(layer.weight))
        found, received = _values_and_lengths_received(exact, x)
    slack = _square_change(lengths, product).sqrt() * received
    rounding = 1e-12 * (1 + received + values.abs())
    _check_values(subject, values, found, slack + rounding)
    return exact.to(dtype)


def _check_parts(subject: str, parts: list[Affine | nn.Module], points: Tensor) -> None:
    affine = [part for part in parts if isinstance(part, Affine)]
    for part in parts:
        if not isinstance(part, (Affine, *_ACTIVATIONS)):
            rule = "must consist of linear layers and MaxMin, GroupSort, FullSort, Abs or ReLU"
            raise ArgumentError(subject, "network", rule, str(part))
    if len(affine[-1].bias) != 1 or not isinstance(parts[-1], Affine):
        outputs = f"{len(affine[-1].bias)} outputs"
        rule = "must end in a linear layer with one output"
        got = outputs if isinstance(parts[-1], Affine) else str(parts[-1])
        remedy = "The theorem speaks of scalar functions: treat the outputs one by one."
        raise ArgumentError(subject, "network", rule, got, remedy)
    if points.dim() != 2 or len(points) == 0 or points.shape[1] != affine[0].weight.shape[1]:
        rule = f"must be (count, {affine[0].weight.shape[1]}) with at least one point"
        raise ArgumentError(subject, "points", rule, f"shape {tuple(points.shape)}")


def _check_weights(subject: str, layers: list[nn.Linear], tol: float) -> float:
    """The factor by which the product of all norms may pass 1, after the check of each."""
    product = 1.0
    for index, layer in enumerate(layers):
        norm = bound_spectral_norm(layer.weight.detach()).value
        if norm > 1 + tol:
            rule = "every weight must have spectral norm at most 1"
            got = f"{norm:.6g} in linear layer {index}"
            remedy = (
                "Use taut.nn.OrthonormalLinear or SpectralLinear, or divide the weight by its norm."
            )
            raise ArgumentError(subject, rule=rule, got=got, remedy=remedy)
        product *= max(norm, 1.0)
    return product


def _check_gradients(subject: str, lengths: Tensor, tol: float) -> None:
    worst = int(lengths.argmin())
    if not lengths[worst] >= 1 - tol:
        raise ArgumentError(
            subject,
            rule="the gradient of `network` must have length 1 at all points",
            got=f"{float(lengths[worst]):.6g} at point {worst}",
            remedy="Where gradients are shorter, the singular values below 1 are part of the "
            "function. Train with orthonormal layers.",
        )


def _check_values(subject: str, values: Tensor, found: Tensor, allowed: Tensor) -> None:
    over = (found - values).abs() - allowed
    worst = int(over.argmax())
    if not over[worst] <= 0:
        rule = "must sort alike with the old and the new weights"
        got = f"{float(values[worst]):.6g} and {float(found[worst]):.6g} at point {worst}"
        remedy = (
            "What a weight had shrunk decides a comparison once it is not. Keep the "
            "network as it is, or leave out the points where the two disagree."
        )
        raise ArgumentError(subject, "network", rule, got, remedy)


def _values_and_gradient_norms(network: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.clone().requires_grad_()
        values, _ = _values_and_lengths_received(network, x)
        (gradients,) = torch.autograd.grad(values.sum(), x)
    return values.detach(), torch.linalg.vector_norm(gradients, dim=1)


def _values_and_lengths_received(network: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs `(count,)`, and the sums of the lengths of what each linear layer receives."""
    received = torch.zeros_like(x[:, 0])
    for module in network:
        if isinstance(module, nn.Linear):
            received = received + torch.linalg.vector_norm(x.detach(), dim=1)
        x = module(x)
    return x.squeeze(1), received


def _square_change(lengths: Tensor, product: float) -> Tensor:
    r"""The bound of $\|v_i (\tilde W_i - W_i)\|^2$, $2\varepsilon$ for norms at most 1.

    With norms of product $C \ge 1$, so each at most $C$, the proof has $\|v_i\| \le C$,
    $\|v_i W_i\| \ge (1 - \varepsilon)/C$ and
    $(1 - \sigma)^2 \le 1 - \sigma^2 + 2 (C^2 - 1)$ for $\sigma \le C$.
    """
    c = product**2 * (1 + 1e-13)  # the lengths come with rounding errors
    return c - lengths.clamp(max=1) ** 2 / c + 2 * (c - 1) * c
