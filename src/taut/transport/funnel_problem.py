r"""The funnels: P is made from Q by moving mass down a minimum of cones, in any dimension.

A known 1-Lipschitz function comes first and the pair of distributions after it, so the distance is
known where no solver could find it: the benchmark of Korotin, Kolesov and Burnaev (2022, "Kantorovich
strikes back!"). Its optimal critic *is* a minimum of cones, which favours `ConeCritic`; whoever
quotes a figure for that critic here should say so.
"""

import hashlib
import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from taut.errors import check_count
from taut.transport.problems import Problem, check_last_dimension

_HALF_WIDTH = 2.5
_SPREAD = 0.1
_POWER = 8
# Rows times apexes of the largest intermediate: 8 MB of float64.
_CHUNK = 2**20


def funnels(dim: int, num_funnels: int, seed: int, *, num_pairs: int = 2**17) -> Problem:
    r"""Q uniform on a cube; P is Q drawn down the funnels of $u(y) = \min_n (\|y - a_n\| + b_n)$.

    The apexes $a_n$ are uniform on $[-5/2, 5/2]^d$ like Q, the depths $b_n$ normal with standard
    deviation 1/10. The ray from $a_n$ through $y$, its funnel's apex, ends at $e$ where another
    funnel or the wall of the cube begins; with $y = a_n + t (e - a_n)$, $t \in [0, 1]$,

    $$x = a_n + t^8 (e - a_n).$$

    A funnel is star-shaped about its apex, so $x$ stays in it and $u(y) - u(x) = \|y - x\|$ for
    every pair. By duality the pairing is optimal, $-u$ is a best critic, and
    $W_1(P, Q) = \mathbb{E}\|y - x\|$.

    Args:
        dim: dimension $d$.
        num_funnels: number of apexes. One that lies inside a deeper funnel owns no points.
        seed: random seed of the funnels and of the pairs behind `distance`.
        num_pairs: number of optimal pairs whose mean length is `distance`.

    Returns:
        A problem whose `distance` is a mean over optimal pairs, exact but for `standard_error`,
        and whose `draw_paired` draws from the optimal coupling.

    Example:
        >>> problem = funnels(dim=2, num_funnels=4, seed=0, num_pairs=1000)
        >>> x, y = problem.draw_paired(5, torch.Generator().manual_seed(1))
        >>> fall = problem.potential(x) - problem.potential(y)
        >>> torch.allclose(fall, (x - y).norm(dim=-1), atol=1e-5)
        True
    """
    check_count("funnels", "dim", dim)
    check_count("funnels", "num_funnels", num_funnels)
    check_count("funnels", "num_pairs", num_pairs, minimum=2)
    # Hashed, so that a sampler with the same small seed does not draw the apexes themselves.
    digest = hashlib.sha256(f"funnels {seed}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    apexes = _uniform(num_funnels, dim, generator)
    depths = torch.randn(num_funnels, generator=generator, dtype=torch.float64) * _SPREAD
    landscape = Funnels(apexes, depths)
    lengths = landscape.draw_lengths(num_pairs, generator)
    return Problem(
        name=f"{num_funnels} funnel{'s' * (num_funnels > 1)} in {dim} dimensions",
        dim=dim,
        distance=lengths.mean().item(),
        potential=landscape.potential,
        draw_p=landscape.draw_p,
        draw_q=landscape.draw_q,
        draw_paired=landscape.draw_paired,
        standard_error=lengths.std().item() / math.sqrt(num_pairs),
    )


@dataclass(frozen=True)
class Funnels:
    r"""The landscape $u(y) = \min_n (\|y - a_n\| + b_n)$ over the cube, in float64."""

    apexes: Tensor  # (funnels, dim)
    depths: Tensor  # (funnels,)

    def potential(self, points: Tensor) -> Tensor:
        """The best critic $-u$, `(..., dim) -> (...)`, computed in float64."""
        dim = self.apexes.shape[-1]
        check_last_dimension(points, dim)
        flat = points.detach().reshape(-1, dim).double()
        height = torch.cat([self._nearest(part)[1] for part in flat.split(self._rows)])
        return -height.reshape(points.shape[:-1]).to(points.dtype)

    def draw_q(self, n: int, generator: Generator) -> Tensor:
        """Uniform on the cube, `(n, dim)`."""
        return _uniform(n, self.apexes.shape[-1], generator).to(torch.get_default_dtype())

    def draw_p(self, n: int, generator: Generator) -> Tensor:
        """Q moved down the funnels, `(n, dim)`."""
        return self.draw_paired(n, generator)[0]

    def draw_paired(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """`n` pairs `(x, y)` of the optimal coupling, each `(n, dim)`."""
        y = _uniform(n, self.apexes.shape[-1], generator)
        x = torch.cat([self.descend(part) for part in y.split(self._rows)])
        dtype = torch.get_default_dtype()
        return x.to(dtype), y.to(dtype)

    def draw_lengths(self, n: int, generator: Generator) -> Tensor:
        """How far each of `n` points of Q moves, `(n,)`; in chunks of constant memory."""
        lengths = []
        for start in range(0, n, self._rows):
            y = _uniform(min(self._rows, n - start), self.apexes.shape[-1], generator)
            lengths.append(torch.linalg.vector_norm(self.descend(y) - y, dim=-1))
        return torch.cat(lengths)

    def descend(self, y: Tensor) -> Tensor:
        """The point `x` to which each `y` of the cube moves, `(n, dim)` in float64."""
        owner, _ = self._nearest(y)
        apex = self.apexes.to(y.device)[owner]
        radius = torch.linalg.vector_norm(y - apex, dim=-1, keepdim=True)
        # A point on its apex has no ray and stays.
        direction = (y - apex) / radius.clamp(min=torch.finfo(y.dtype).tiny)
        end = self.ray_length(owner, direction).unsqueeze(-1)
        # Rounding may put a point on the border a little past the end of its ray.
        fraction = (radius / end).clamp(max=1)
        return apex + fraction.pow(_POWER - 1) * (y - apex)

    def ray_length(self, owner: Tensor, direction: Tensor) -> Tensor:
        r"""How far the ray from each apex runs before another funnel or the wall begins, `(n,)`.

        Funnel $m$ begins on the ray $a_n + s w$ where $\|s w + D\| = s + \beta$, with
        $D = a_n - a_m$ and $\beta = b_n - b_m$. Squared, $s^2$ cancels:

        $$s = \frac{\|D\|^2 - \beta^2}{2 (\beta - w \cdot D)},$$

        and there is no border where the denominator is not positive. (For an apex in its own
        funnel, $\beta \le \|D\|$, and then a positive denominator makes both $s$ and $s + \beta$
        non-negative, so squaring adds no false root.) `owner` are the indices of the apexes, `(n,)`,
        `direction` the unit vectors $w$, `(n, dim)`.
        """
        apexes, depths = self.apexes.to(direction.device), self.depths.to(direction.device)
        own = apexes[owner]
        gap = torch.cdist(apexes, apexes, compute_mode="donot_use_mm_for_euclid_dist")[owner]
        drop = depths[owner].unsqueeze(-1) - depths
        slant = (direction * own).sum(-1, keepdim=True) - direction @ apexes.T
        closing = drop - slant
        # The ray's own funnel has no border with itself: rounding must not invent one.
        closing[torch.arange(len(owner), device=owner.device), owner] = 0
        border = (gap - drop) * (gap + drop) / (2 * closing)
        border = torch.where(closing > 0, border, math.inf).amin(-1)
        wall = (torch.where(direction > 0, _HALF_WIDTH, -_HALF_WIDTH) - own) / direction
        wall = torch.where(direction != 0, wall, math.inf).amin(-1)
        return torch.minimum(border, wall)

    @property
    def _rows(self) -> int:
        return max(1, _CHUNK // max(self.apexes.shape))

    def _nearest(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The funnel that owns each point, and its height there, both `(n,)`."""
        apexes, depths = self.apexes.to(points.device), self.depths.to(points.device)
        # The fast form is good enough to choose by, though not to measure with.
        owner = (torch.cdist(points, apexes) + depths).argmin(-1)
        return owner, torch.linalg.vector_norm(points - apexes[owner], dim=-1) + depths[owner]


def _uniform(n: int, dim: int, generator: Generator) -> Tensor:
    unit = torch.rand(n, dim, generator=generator, dtype=torch.float64, device=generator.device)
    return (2 * unit - 1) * _HALF_WIDTH
