"""
A distance field whose rays never pass through
==============================================

A network of constant 1 that is positive outside a shape tells how far a ray may go without hitting it:
its value is a lower bound of the distance to its own surface. Sphere tracing with that step is a proof.
The shape comes as points with normals alone.
"""

import math

import torch

import taut
from taut.certificates import trace_rays
from taut.plotting import Figure

MAJOR, MINOR = 0.7, 0.3


def sample_torus(count, generator):
    """Points on a torus and their normals."""
    u, v = (2 * math.pi * torch.rand(count, generator=generator) for _ in range(2))
    ring = torch.stack([u.cos(), u.sin(), torch.zeros(count)], 1)
    up = torch.tensor([0.0, 0.0, 1.0])
    normals = v.cos()[:, None] * ring + v.sin()[:, None] * up
    return MAJOR * ring + MINOR * normals, normals


def distance(x):
    """The exact signed distance, for comparison only."""
    ring = x[:, :2].norm(dim=1) - MAJOR
    return torch.hypot(ring, x[:, 2]) - MINOR


generator = torch.Generator().manual_seed(0)
surface, normals = sample_torus(4096, generator)

# %%
# The target at a point is its distance to the nearest sample, with the sign of the normal there:


def target(x):
    nearest = torch.cdist(x, surface).argmin(1)
    away = x - surface[nearest]
    side = (away * normals[nearest]).sum(1).sign()
    return (side * away.norm(dim=1))[:, None]


torch.manual_seed(0)
net = taut.nn.mlp([3, 96, 96, 96, 1])
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
steps = 800
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
for _ in range(steps):
    x = 2.6 * torch.rand(512, 3, generator=generator) - 1.3
    loss = (net(x) - target(x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
net = net.double().eval()
print(taut.bound_lipschitz(net))

# %%
# Both fields have slope at most 1, so their difference has slope at most 2: its largest value on a grid
# bounds it everywhere in the cube.

count, side = 72, 2.6
line = (torch.arange(count, dtype=torch.float64) + 0.5) * side / count - side / 2
grid = torch.cartesian_prod(line, line, line)
with torch.no_grad():
    gap = (net(grid).flatten() - distance(grid)).abs().max().item()
error = gap + 2 * math.sqrt(3) / 2 * side / count
print(f"error on the grid {gap:.3f}, proven in the cube {error:.3f}")

# %%
# The picture: one ray for each pixel, shaded by the gradient where it ends.

size = 120
eye = torch.tensor([0.9, -1.2, 1.6], dtype=torch.float64)
forward = -eye / eye.norm()
right = torch.linalg.cross(forward, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
right = right / right.norm()
above = torch.linalg.cross(right, forward)
span = torch.linspace(-0.55, 0.55, size, dtype=torch.float64)
row, column = torch.meshgrid(-span, span, indexing="ij")
rays = forward + column[..., None] * right + row[..., None] * above
origins = eye.expand(size * size, 3)
found = trace_rays(net, origins, rays.reshape(-1, 3), max_distance=4.0)
unit = rays.reshape(-1, 3) / rays.reshape(-1, 3).norm(dim=1, keepdim=True)
ends = (origins + found.distance[:, None] * unit).requires_grad_()
(slopes,) = torch.autograd.grad(net(ends).sum(), ends)
light = torch.nn.functional.normalize(torch.tensor([0.3, -0.5, 1.0], dtype=torch.float64), dim=0)
shade = (0.25 + 0.75 * (slopes @ light).clamp(min=0)).masked_fill(~found.hit, 1.0)
picture = shade.reshape(size, size)


def paint(axes):
    axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="bilinear")
    axes.set_axis_off()


torus = Figure(paint, alt="A shaded torus, seen from above at an angle.", size=(4.5, 4.5))

# %%
# With the proven error as clearance, rays stop before the *true* surface. Where a ray enters the torus
# is the smallest positive root of a polynomial of degree 4, so the formula can be asked about each:

count = 100_000
starts = 1.3 * torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1)
ways = 2 * torch.rand(count, 3, generator=generator) - 1 - starts
starts, ways = starts.double(), torch.nn.functional.normalize(ways.double(), dim=1)
safe = trace_rays(net, starts, ways, max_distance=2.6, error=error)

b, c = (starts * ways).sum(1), starts.square().sum(1) + MAJOR**2 - MINOR**2
flat, cross = ways[:, :2].square().sum(1), (starts * ways)[:, :2].sum(1)
companion = torch.zeros(count, 4, 4, dtype=torch.float64)
companion[:, 1:, :3] = torch.eye(3)
companion[:, 0, 3] = 4 * MAJOR**2 * starts[:, :2].square().sum(1) - c.square()
companion[:, 1, 3] = 8 * MAJOR**2 * cross - 4 * b * c
companion[:, 2, 3] = 4 * MAJOR**2 * flat - 4 * b.square() - 2 * c
companion[:, 3, 3] = -4 * b
roots = torch.linalg.eigvals(companion)
real = (roots.imag.abs() < 1e-9) & (roots.real > 0)
entry = roots.real.masked_fill(~real, math.inf).amin(1)
passed = int((safe.distance > entry).sum())
print(
    f"{count:,} rays, {int((entry < 2.6).sum()):,} of which meet the torus: {passed} pass through"
)
print(f"a ray stops {(entry - safe.distance)[safe.hit & (entry < 2.6)].mean():.3f} before it")
