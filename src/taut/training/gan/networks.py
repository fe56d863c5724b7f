"""The networks of a GAN: InfoGAN's generator, and its critic in three kinds."""

import math
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from taut.errors import ArgumentError, check_count
from taut.nn import MaxMin, OrthonormalConv2d, OrthonormalLinear, SpectralConv2d
from taut.training.gan.config import GanConfig

# Rows of one pass in evaluation: enough to use a core, small enough for memory.
_ROWS = 512


class ImageGenerator(nn.Module):
    """Maps uniform noise to images in [-1, 1].

    Two dense layers and two transposed convolutions, each but the last behind batch normalisation
    and ReLU, then tanh; each convolution doubles height and width.

    Args:
        shape: `(channels, height, width)`, the last two multiples of 4.
        latent: the dimension of the noise.
        hidden: units of the first dense layer.
        width: channels of the input of the last convolution; the previous one has twice as many.

    Example:
        >>> generator = ImageGenerator((3, 32, 32), latent=8, hidden=16, width=4).eval()
        >>> generator.sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3, 32, 32])
    """

    def __init__(self, shape: Sequence[int], latent: int, hidden: int, width: int) -> None:
        super().__init__()
        channels, height, breadth = _check_images(shape)
        self.shape = (channels, height, breadth)
        self.latent = latent
        start = (2 * width, height // 4, breadth // 4)
        self.layers = nn.Sequential(
            nn.Linear(latent, hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, math.prod(start), bias=False),
            nn.BatchNorm1d(math.prod(start)),
            nn.ReLU(),
            nn.Unflatten(1, start),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, channels, 4, stride=2, padding=1),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        """Maps `(n, latent)` to `(n, channels, height, width)`."""
        return self.layers(z)

    def draw_noise(self, n: int, generator: Generator | None = None) -> Tensor:
        """Draws `(n, latent)` uniformly from [0, 1]; None uses torch's own generator."""
        position = next(self.parameters())
        if generator is None:
            return torch.rand(n, self.latent, device=position.device, dtype=position.dtype)
        drawn = torch.rand(n, self.latent, generator=generator, device=generator.device)
        return drawn.to(position)

    @torch.no_grad()
    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draws `n` independent images, `(n, *shape)` in [-1, 1], by the running statistics.

        Equal seeds give equal images; the network is left as it was.
        """
        check_count("ImageGenerator.sample", "n", n)
        was_training = self.training
        self.eval()
        parts = [self(z) for z in self.draw_noise(n, generator).split(_ROWS)]
        self.train(was_training)
        return torch.cat(parts)


def build_generator(config: GanConfig, shape: Sequence[int]) -> ImageGenerator:
    """Builds the generator of a configuration, with random weights from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        return ImageGenerator(shape, config.latent, config.generator_hidden, config.width)


def build_critic(config: GanConfig, shape: Sequence[int]) -> nn.Sequential:
    r"""Builds a critic, `(n, *shape) -> (n, 1)`, with random weights from `seed`.

    Two convolutions of 4 x 4 with stride 2, and two dense layers. With `critic="lipschitz"` every
    layer has norm at most 1 and MaxMin sorts between them, so $|f(x) - f(y)| \le \|x - y\|_2$ at
    every moment of training, and $\mathbb{E}_P f - \mathbb{E}_Q f \le W_1(P, Q)$ for any two laws,
    including those of two batches. The other kinds are plain layers, with no proven bound.

    Example:
        >>> critic = build_critic(GanConfig(width=4, critic_hidden=8), (1, 8, 8))
        >>> taut.bound_lipschitz(critic, input_shape=(1, 8, 8)).value <= 1
        True
    """
    config = config.resolved()
    channels, height, breadth = _check_images(shape)
    conv: type[nn.Module] = nn.Conv2d
    linear: type[nn.Module] = nn.Linear
    if config.critic == "lipschitz":
        conv = OrthonormalConv2d if config.convolution == "orthonormal" else SpectralConv2d
        linear = OrthonormalLinear

    def activation(dim: int) -> nn.Module:
        return MaxMin(dim) if config.activation == "maxmin" else nn.LeakyReLU(0.2)

    width, cells = config.width, height // 4 * (breadth // 4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed + 1)
        return nn.Sequential(
            conv(channels, width, 4, stride=2, padding=1),
            activation(1),
            conv(width, 2 * width, 4, stride=2, padding=1),
            activation(1),
            nn.Flatten(),
            linear(2 * width * cells, config.critic_hidden),
            activation(-1),
            linear(config.critic_hidden, 1),
        )


def _check_images(shape: Sequence[int]) -> tuple[int, int, int]:
    if len(shape) != 3 or shape[1] % 4 or shape[2] % 4 or min(shape) < 1:
        rule = "the data must be images (channels, height, width) whose height and width are "
        rule, got = f"{rule}multiples of 4", f"inputs of shape {tuple(shape)}"
        raise ArgumentError("train_gan", rule=rule, got=got, remedy="Pad or crop them first.")
    return shape[0], shape[1], shape[2]
