r"""Evidence that scores of a stream have a larger mean than those of a reference, at any time.

All scores lie in $[0, 1]$ and were fixed before these rows were seen. $\mu$ is the mean of a score
over the reference's population, of which $n$ independent draws $a_i$ are known; the stream gives
$z_1, z_2, \dots$ in batches. The hypothesis is that no batch drifts by more than $\tau$: given the
past, each $z_i$ has a mean of at most $\mu + \tau$.

**Theorem.** For a candidate $m$ of $\mu$, shares $\theta \in [0, 1)$ of one's wealth and starts $s$,
with weights $w_\theta$ and $\pi_s$ of sum at most 1, let

$$R(m) = \sum_\theta w_\theta \prod_{i \le n}
    \Bigl(1 - \theta + \theta\,\frac{1 - a_i}{1 - m}\Bigr), \qquad
  K_t(m) = \sum_{s, \theta} \pi_s w_\theta \prod_{s \le i \le t}
    \Bigl(1 - \theta + \theta\,\frac{z_i}{m + \tau}\Bigr), \qquad
  E_t = \inf_m R(m)\,K_t(m).$$

Under the hypothesis the mean of any number of such $E_t$, of as many scores, is at least $1/\alpha$ at
some time $t$ with a probability of at most $\alpha$.

*Proof.* Each factor of $R(\mu)$ has the mean 1, and the draws are independent, so $\mathbb{E} R(\mu) = 1$.
Each factor of $K_t(\mu)$ is non-negative and has, given the past, a mean of at most 1; so
$M_t = R(\mu) K_t(\mu)$ is a non-negative supermartingale with $\mathbb{E} M_0 \le 1$, also as the average
over several scores. $E_t \le M_t$, for $\mu$ is one of the candidates. Ville's inequality bounds
$\Pr(\sup_t M_t \ge 1/\alpha)$ by $\alpha$. $\square$

Neither the number of batches nor the time of the drift need be known: a bet that starts with the batch
$s$ has not lost what was lost before. Where a batch drifts, $E_t$ grows about as
$e^{\delta^2 t n / 2 (n + t)}$, with $\delta$ the drift in standard deviations of the score and $t$ the
rows since it began.

**The infimum.** $R$ grows with $m$ and $K_t$ falls, factor by factor. So between two nodes
$m_{i-1} \le m \le m_i$ the product is at least $R(m_{i-1}) K_t(m_i)$; below the first node $R$ is at
least the weight of $\theta = 0$. Any nodes will do, even ones chosen by looking at the draws.
"""

import math

import torch
from torch import Tensor

from taut.linalg import gamma

_STREAM_BETS = torch.tensor([0.75 / 2**j for j in range(6)], dtype=torch.float64)
_REFERENCE_BETS = torch.tensor([0.0, *(0.75 / 2**j for j in range(9))], dtype=torch.float64)
# Distances of the nodes from the mean of the draws, in standard errors.
_OFFSETS = torch.cat([torch.linspace(-1, 5, 31), torch.linspace(5.5, 30, 15)]).double()
_LEAST = 1e-4
_ROWS_AT_ONCE = 64  # factors from 1/4 to 10^4, whose product cannot overflow
_SCORE_ERROR = 1e-12  # far above the rounding errors of a score in [0, 1]
_CELLS = 2**22


def make_nodes(draws: Tensor) -> Tensor:
    """The nodes `(k, g)` of the scores `(n, k)` of a reference, growing; the last one is 1."""
    n = len(draws)
    error = (draws.std(0, correction=0) + n**-0.5) / math.sqrt(n)
    nodes = draws.mean(0)[:, None] + error[:, None] * _OFFSETS
    return torch.cat([nodes, torch.ones_like(nodes[:, :1])], 1).clamp(_LEAST, 1.0)


def log_reference(draws: Tensor, nodes: Tensor) -> Tensor:
    """Logarithms of $R$ for draws `(n, k)`, `(k, g)`: below the first node, and at all but the last."""
    # A node beyond the largest is moved down to it, where R is smaller.
    least = (1 - nodes[:, :-1]).clamp_min(_LEAST)
    products = _log_products(1 - draws, least, _REFERENCE_BETS)
    logs = products.logsumexp(-1) - math.log(len(_REFERENCE_BETS))
    return torch.cat([torch.full_like(logs[:, :1], -math.log(len(_REFERENCE_BETS))), logs], 1)


def new_wealth(nodes: Tensor) -> Tensor:
    """Logarithms of the stakes of all bets, `(k, g, bets)`, before any began."""
    return torch.full((*nodes.shape, len(_STREAM_BETS)), -1e9, dtype=torch.float64)


def log_wealth(wealth: Tensor, draws: Tensor, means: Tensor, batch: int) -> Tensor:
    r"""The logarithms after the batch number `batch`, from 1: $\pi_s = 1/s(s + 1)$ is staked first.

    `draws` are `(n, k)` in [0, 1], `means` $m + \tau$, `(k, g)`, positive.
    """
    stake = -math.log(batch * (batch + 1) * len(_STREAM_BETS))
    started = torch.logaddexp(wealth, torch.full_like(wealth, stake))
    return started + _log_products(draws, means, _STREAM_BETS)


def log_evidence(reference: Tensor, wealth: Tensor, batch: int) -> Tensor:
    r"""Logarithms of $E_t$, `(k,)`; what is not yet staked, $1/(t + 1)$, counts as well."""
    unspent = torch.full_like(wealth[..., :1], -math.log(batch + 1))
    total = torch.cat([wealth, unspent], -1).logsumexp(-1)
    return (reference + total).amin(-1)


def bound_rounding(rows: int) -> float:
    """A bound of the rounding error that so many rows add to a logarithm of evidence.

    A factor is at least 1/4 and has a slope of at most 1/m in its score; its logarithm is below 10.
    """
    return rows * 4 * _SCORE_ERROR / _LEAST + gamma(rows + 64) * 10 * (rows + 64)


def _log_products(draws: Tensor, means: Tensor, bets: Tensor) -> Tensor:
    r"""Sums over draws of $\log(1 - \theta + \theta z / m)$: `(n, k)` and `(k, g)` to `(k, g, bets)`."""
    n, k = draws.shape
    size = min(n, _ROWS_AT_ONCE)
    blocks = -(-n // size)
    sums = torch.empty(*means.shape, len(bets), dtype=torch.float64)
    columns = max(1, _CELLS // (n * means.shape[1]))
    for start in range(0, k, columns):
        part = slice(start, start + columns)
        excess = draws[:, part, None] / means[part] - 1
        # Rows of zeros fill the last block: their factors are 1.
        excess = torch.nn.functional.pad(excess, (0, 0, 0, 0, 0, blocks * size - n))
        excess = excess.view(blocks, size, *excess.shape[1:])
        for j, bet in enumerate(bets.tolist()):
            sums[part, :, j] = (1 + bet * excess).prod(1).log().sum(0)
    return sums
