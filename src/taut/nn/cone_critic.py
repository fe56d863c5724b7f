r"""A critic that is a minimum of cones: 1-Lipschitz by construction, and universal.

Every 1-Lipschitz function on a finite set is a minimum of cones with their apexes in that set
(McShane 1934), so with enough centres the family misses nothing. It does best where the best critic
has many creases, which networks learn slowly; on smooth high-dimensional data such as images,
networks do better. Fit both and select on held-out samples.
"""

import math

import torch
from torch import Generator, Tensor, nn

from taut.errors import ArgumentError, check_count, check_positive
from taut.linalg.rounding import exact_double
from taut.norms import L1, L2, Norm
from taut.rules import Call, Constants, FileSchema, Rounding, register

# Entries of the largest intermediate of an evaluation: 16 MB of float32.
_CHUNK = 2**22


class ConeCritic(nn.Module):
    r"""A minimum of cones, upright or hanging: $f(x) = \sigma \min_j (\|x - c_j\| + b_j)$.

    In evaluation the minimum is hard. In training it is soft,

    $$-T \log \sum_j e^{-(\|x - c_j\| + b_j) / T},$$

    below the hard one by at most $T \log M$, so that every centre near enough has a gradient.

    Both are 1-Lipschitz from the Euclidean norm, whatever the parameters: a cone is, a minimum of
    1-Lipschitz functions is, and the gradient of the soft minimum is a convex combination
    $\sum_j p_j (x - c_j) / \|x - c_j\|$ of unit vectors. At a centre the gradient of its own cone
    is taken as 0, a subgradient of the norm, so no NaN arises.

    Args:
        num_centres: number of cones $M$.
        dim: dimension of the space.
        sign: $\sigma$, 1 or -1. With -1 the cones point up, and their tips belong where P is.
        temperature: $T > 0$ in training mode, in the units of the data; may be set at any time.
        generator: source of the initial centres, standard normal; offsets start at zero.

    Example:
        >>> critic = ConeCritic(5, dim=2).eval()
        >>> critic(torch.zeros(3, 2)).shape
        torch.Size([3, 1])
        >>> from taut.audit import bound_lipschitz
        >>> bound_lipschitz(critic)
        Bound(<= 1.0, l2, proven)
    """

    sign: Tensor

    def __init__(
        self,
        num_centres: int,
        dim: int,
        *,
        sign: int = 1,
        temperature: float = 0.1,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        check_count("ConeCritic", "num_centres", num_centres)
        check_count("ConeCritic", "dim", dim)
        check_positive("ConeCritic", "temperature", temperature)
        if sign not in (1, -1):
            raise ArgumentError("ConeCritic", "sign", "must be 1 or -1", sign)
        self.num_centres, self.dim = num_centres, dim
        device = None if generator is None else generator.device
        centres = torch.randn(num_centres, dim, generator=generator, device=device)
        self.centres = nn.Parameter(centres)
        self.offsets = nn.Parameter(centres.new_zeros(num_centres))
        # The orientation is part of the function, so it travels with the weights.
        self.register_buffer("sign", centres.new_tensor(float(sign)))
        self.temperature = temperature

    @classmethod
    def from_points(
        cls, centres: Tensor, offsets: Tensor | None = None, *, sign: int = 1
    ) -> "ConeCritic":
        """A critic with these centres `(M, dim)` and offsets `(M,)`, zero by default; evaluating."""
        critic = cls(*centres.shape, sign=sign, generator=Generator().manual_seed(0)).to(centres)
        with torch.no_grad():
            critic.centres.copy_(centres)
            if offsets is not None:
                critic.offsets.copy_(offsets)
        return critic.eval()

    def forward(self, x: Tensor) -> Tensor:
        """`(..., dim) -> (..., 1)`."""
        if x.shape[-1:] != self.centres.shape[-1:]:
            rule = f"must have last dimension {self.dim}"
            raise ArgumentError("ConeCritic", "x", rule, f"shape {tuple(x.shape)}")
        points = x.reshape(-1, x.shape[-1])
        lowest = self._soft_minimum(points) if self.training else self._minimum(points)
        return self.sign * lowest.reshape(*x.shape[:-1], 1)

    def _minimum(self, points: Tensor) -> Tensor:
        """The hard minimum, from differences of coordinates: accurate next to a centre too."""
        if torch.compiler.is_exporting():  # plain operations, for any runtime and batch size
            steps = points.unsqueeze(1) - self.centres
            return (steps.square().sum(-1).sqrt() + self.offsets).amin(-1)
        # Which cone is lowest needs no derivative; its height, and its derivatives of every order,
        # come from that cone alone.
        fixed, centres = points.detach(), self.centres.detach()
        rows = max(1, _CHUNK // len(centres))
        lowest = torch.cat(
            [
                torch.cdist(part, centres, compute_mode="donot_use_mm_for_euclid_dist")
                .add(self.offsets.detach())
                .argmin(-1)
                for part in fixed.split(rows)
            ]
        )
        # The order of a sum follows the memory layout; the same points must score the same.
        steps = (points - self.centres[lowest]).contiguous()
        return torch.linalg.vector_norm(steps, dim=-1) + self.offsets[lowest]

    def _soft_minimum(self, points: Tensor) -> Tensor:
        """The soft minimum, from one matrix product: fast, with gradients sound to a few percent.

        Squares cancel next to a centre, by a few units of roundoff in their sum. Distances below
        that noise are held at its level, where their gradient is zero, and never divided by.
        """
        # Distances do not know where the origin is; rounding errors do.
        middle = self.centres.detach().mean(0)
        points, centres = points - middle, self.centres - middle
        squares = points.square().sum(-1, keepdim=True) + centres.square().sum(-1)
        floor = squares.detach() * (16 * torch.finfo(squares.dtype).eps)
        floor = floor.clamp(min=torch.finfo(squares.dtype).tiny)
        distances = torch.addmm(squares, points, centres.T, alpha=-2).clamp(min=floor).sqrt()
        heights = distances + self.offsets
        return -self.temperature * torch.logsumexp(heights / -self.temperature, -1)

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"num_centres={self.num_centres}, dim={self.dim}, sign={int(self.sign)}"


def _cones(call: Call) -> Constants:
    module = call.module
    for parameter in (module.centres, module.offsets):
        exact_double("ConeCritic", parameter)
    steepness = abs(float(exact_double("ConeCritic", module.sign)))
    # One point in, one number out, for which all norms agree; several points in, several numbers.
    shape = call.x.shape
    single = shape is not None and len(shape) == 1
    wide = math.nextafter(steepness * math.sqrt(module.centres.shape[-1]) * (1 + 2**-50), math.inf)

    def gain(p: Norm, q: Norm) -> float:
        if not (single or q.p >= p.p):
            return math.inf
        return steepness if p in (L1, L2) else wide

    return call.x.constants.through(gain)


def _magnitude(call: Call, x: Tensor) -> Tensor:
    """The distance to the nearest centre is off by its own size, an offset by its own."""
    module = call.module
    centres, offsets = module.centres.double(), module.offsets.double().abs().max()
    reach = x.norm(dim=-1, keepdim=True) + centres.norm(dim=-1).max() + offsets
    return reach * module.sign.double().abs()


register(
    ConeCritic,
    proof="minimum of cones",
    constants=_cones,
    # Differences, squares, their sum, a root and an offset; once for the height, and twice for the
    # choice of the lowest cone, since two rounded heights are compared.
    rounding=Rounding(
        lambda call: 3 * (call.module.centres.shape[-1] + 16), _magnitude, _cones, squares=True
    ),
    file=FileSchema(
        ConeCritic,
        {"num_centres": int, "dim": int, "temperature": float},
        {"num_centres": 1, "dim": 1},
        lambda a: {
            "centres": (a["num_centres"], a["dim"]),
            "offsets": (a["num_centres"],),
            "sign": (),
        },
    ),
)
