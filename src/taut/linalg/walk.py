r"""How a convolution walks through one dimension, and where that fits on a circle.

Output `t` reads the inputs $st + dj - a$. With $u + a = sb + r$ the inputs become blocks `b` of `s`
phases `r`, and output `t` reads phase $dj \bmod s$ of block $t + \lfloor dj/s \rfloor$: a
convolution of stride 1 between blocks.
"""

from dataclasses import dataclass, replace

from taut.errors import ArgumentError

__all__ = ["Axis", "Walk"]


@dataclass(frozen=True)
class Axis:
    """One dimension in blocks: tap `j` reads phase `phases[j]`, `offsets[j]` blocks further on."""

    phases: list[int]
    offsets: list[int]
    used: list[bool]
    circle: int | None = None  # the number of blocks of a circle that holds the map


@dataclass(frozen=True)
class Walk:
    """One dimension as torch walks it: output `t` reads input `stride t + dilation j - pad[0]`."""

    taps: int
    stride: int
    dilation: int
    pad: tuple[int, int]
    size: int | None
    outputs: int | None = None

    def count(self, stride: int) -> int:
        """The number of outputs for a known size, had the walk this stride."""
        if self.outputs is not None:
            return self.outputs
        room = (self.size or 0) + sum(self.pad) - self.dilation * (self.taps - 1) - 1
        if room < 0:
            raise ArgumentError(
                "bound_convolution: `input_size` must hold a window, padding included; "
                f"got size {self.size} with padding {self.pad} for {self.taps} taps."
            )
        return room // stride + 1

    def axis(self) -> Axis:
        """With zeros beyond the input, on a circle long enough for nothing to wrap."""
        reads = [self.dilation * j for j in range(self.taps)]
        phases = [read % self.stride for read in reads]
        offsets = [read // self.stride for read in reads]
        if self.size is None:
            return Axis(phases, offsets, [True] * self.taps)
        starts = range(-self.pad[0], self.stride * self.count(self.stride) - self.pad[0])
        first = [starts[0] + read for read in reads]
        used = [
            any(0 <= at < self.size for at in range(low, low + len(starts), self.stride))
            for low in first
        ]
        # Blocks of inputs b and outputs t: b - t must miss every offset shifted by a full circle.
        inputs = (self.size - 1 + self.pad[0]) // self.stride + 1
        outputs = self.count(self.stride) + offsets[-1] - self.pad[0] // self.stride
        return Axis(phases, offsets, used, max(inputs, outputs))

    def padded(self) -> "Walk":
        """The same walk through an input that brings its padding along."""
        size = None if self.size is None else self.size + sum(self.pad)
        return replace(self, size=size, pad=(0, 0))

    def adjoint(self, extra: int) -> "Walk":
        """The plain walk whose adjoint this transposed one is."""
        if self.size is None:
            return self
        reach = self.dilation * (self.taps - 1) + 1 + extra
        size = (self.size - 1) * self.stride + reach - sum(self.pad)
        return replace(self, size=max(size, 1), outputs=self.size)

    def _circular_stride(self) -> int:
        # A stride that does not divide the circle mixes the phases; without it there are more rows.
        return self.stride if self.size is not None and self.size % self.stride == 0 else 1

    def circle(self) -> Axis:
        """With the input closed to a circle, on which kernels may wrap."""
        stride = self._circular_stride()
        around = replace(self, stride=stride, size=None).axis()
        return around if self.size is None else replace(around, circle=self.size // stride)

    def repeats(self) -> int:
        """How many outputs at most are the same one, a full circle apart."""
        if self.size is not None:
            stride = self._circular_stride()
            return -(-self.count(stride) // (self.size // stride))
        surplus = sum(self.pad) - self.dilation * (self.taps - 1)
        return 1 + max(0, -(-surplus // max(*self.pad, 1)))
