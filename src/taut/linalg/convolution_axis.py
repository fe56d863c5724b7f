r"""One dimension of a convolution: its arguments, and how it fits on a circle.

Output `t` reads the inputs $st + dj - a$. With $u + a = sb + r$ the inputs become blocks `b` of `s`
phases `r`, and output `t` reads phase $dj \bmod s$ of block $t + \lfloor dj/s \rfloor$: a
convolution of stride 1 between blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taut.errors import ArgumentError, check_choice, check_count


def per_dimension(
    subject: str, argument: str, value: int | Sequence[int], dims: int, minimum: int = 1
) -> tuple[int, ...]:
    """One whole number per dimension, from one for all or one for each."""
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dims
    if len(values) != dims:
        rule = "must be one number or one per dimension"
        raise ArgumentError(subject, argument, rule, f"{argument}={value} for {dims} dimensions")
    for each in values:
        check_count(subject, argument, each, minimum)
    return values


def padding_sides(
    subject: str,
    padding: int | str | Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[tuple[int, int]]:
    """The padding in front and behind, per dimension, from an argument as torch takes it."""
    if not isinstance(padding, str):
        amounts = per_dimension(subject, "padding", padding, len(taps), minimum=0)
        return [(amount, amount) for amount in amounts]
    check_choice(subject, "padding", padding, ("same", "valid"))
    if padding == "valid":
        return [(0, 0)] * len(taps)
    if max(strides) > 1:
        rule = "must be a number with a stride above 1"
        got = f"padding='same', stride={tuple(strides)}"
        raise ArgumentError(subject, "padding", rule, got, "torch has no such convolution.")
    totals = [step * (k - 1) for k, step in zip(taps, dilations, strict=True)]
    return [(total // 2, total - total // 2) for total in totals]


@dataclass(frozen=True)
class Blocks:
    """One dimension in blocks: tap `j` reads phase `phases[j]`, `offsets[j]` blocks further on."""

    phases: list[int]
    offsets: list[int]
    used: list[bool]
    circle: int | None = None  # the number of blocks of a circle that holds the map


@dataclass(frozen=True)
class ConvAxis:
    """One dimension of torch's convolution: output `t` reads `stride t + dilation j - pad[0]`."""

    taps: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    size: int | None
    outputs: int | None = None

    def count(self, stride: int) -> int:
        """The number of outputs for a known size, if the stride were this one."""
        if self.outputs is not None:
            return self.outputs
        room = (self.size or 0) + sum(self.pad) - self.dilation * (self.taps - 1) - 1
        if room < 0:
            rule = "must hold a window, padding included"
            got = f"size {self.size} with padding {self.pad} for {self.taps} taps"
            raise ArgumentError("bound_convolution", "input_size", rule, got)
        return room // stride + 1

    def blocks(self) -> Blocks:
        """With zeros beyond the input, on a circle long enough for nothing to wrap."""
        reads = [self.dilation * j for j in range(self.taps)]
        phases = [read % self.stride for read in reads]
        offsets = [read // self.stride for read in reads]
        if self.size is None:
            return Blocks(phases, offsets, [True] * self.taps)
        starts = range(-self.pad[0], self.stride * self.count(self.stride) - self.pad[0])
        first = [starts[0] + read for read in reads]
        used = [
            any(0 <= at < self.size for at in range(low, low + len(starts), self.stride))
            for low in first
        ]
        # Blocks of inputs b and outputs t: b - t must miss every offset shifted by a full circle.
        inputs = (self.size - 1 + self.pad[0]) // self.stride + 1
        outputs = self.count(self.stride) + offsets[-1] - self.pad[0] // self.stride
        return Blocks(phases, offsets, used, max(inputs, outputs))

    def circular_blocks(self) -> Blocks:
        """With the input closed to a circle, on which kernels may wrap."""
        stride = self._circular_stride()
        around = replace(self, stride=stride, size=None).blocks()
        return around if self.size is None else replace(around, circle=self.size // stride)

    def _circular_stride(self) -> int:
        # A stride that does not divide the circle mixes the phases; without it there are more rows.
        return self.stride if self.size is not None and self.size % self.stride == 0 else 1

    def padded(self) -> "ConvAxis":
        """The same for an input that brings its padding along."""
        size = None if self.size is None else self.size + sum(self.pad)
        return replace(self, size=size, pad=(0, 0))

    def adjoint(self, extra: int) -> "ConvAxis":
        """The plain convolution whose adjoint this transposed one is."""
        if self.size is None:
            return self
        reach = self.dilation * (self.taps - 1) + 1 + extra
        size = (self.size - 1) * self.stride + reach - sum(self.pad)
        return replace(self, size=max(size, 1), outputs=self.size)

    def repeats(self) -> int:
        """How many outputs at most are the same one, a full circle apart."""
        if self.size is not None:
            stride = self._circular_stride()
            return -(-self.count(stride) // (self.size // stride))
        surplus = sum(self.pad) - self.dilation * (self.taps - 1)
        return 1 + max(0, -(-surplus // max(*self.pad, 1)))
