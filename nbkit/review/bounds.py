"""Upper bounds of ResNet-50 training from memory bandwidth and arithmetic.

The model is a list of kernels, each with the floating-point operations it needs and
the bytes it has to move through the GPU's memory. A kernel takes at least
``max(operations / peak, bytes / bandwidth)``, a step at least the sum. The best
published code reaches 66 % (H200) to 94 % (L40S) of the ``fused`` bound, none exceeds
it; a measurement that does needs a second look. (In fp32 a convolution may use an
algorithm with fewer operations than counted here, such as Winograd's, so that there
the arithmetic limit is not strict.)

Three ways of cutting the same mathematics into kernels:

``eager``
    Convolution, batch-norm statistics, batch-norm apply, ReLU and addition are
    separate kernels, each reading and writing its tensors: PyTorch without compile.
``fused``
    Batch-norm apply, ReLU and addition are one kernel: what torch.compile or cuDNN
    can do.
``minimal``
    Statistics in the convolution's epilogue, apply in the next one's prologue, one
    pass over each output gradient: no code does all of it; a hard ceiling.

Batch normalisation is why a pass over memory cannot be left out: the statistics of a
whole batch are needed before its first element can be normalised, and a batch of
256 does not fit in any cache.

References
----------
K. He et al., https://arxiv.org/abs/1512.03385, table 1; v1.5 has the stride in the
3x3 convolution, as torchvision does. S. Williams et al., Roofline,
https://doi.org/10.1145/1498765.1498785
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from nbkit.errors import ConfigError
from nbkit.review.gpu_peaks import gpu_peaks

Fusion: TypeAlias = Literal["eager", "fused", "minimal"]

_BYTES_PER_ELEMENT = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}

_IMAGE_SIZE = 224
_CLASSES = 1_000
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width and blocks of each stage
_EXPANSION = 4  # a bottleneck's output has four times its width

# SGD with momentum on fp32 weights reads weight, gradient and momentum and writes
# weight and momentum.
_OPTIMIZER_BYTES_PER_PARAMETER = 5 * 4
# Mixed precision reads each fp32 weight and writes its 16-bit copy, once a step.
_CAST_BYTES_PER_PARAMETER = 4 + 2


@dataclass(frozen=True)
class Convolution:
    """One convolution of ResNet-50 with the layers after it."""

    in_channels: int
    out_channels: int
    kernel_size: int
    in_size: int
    """Height and width of the input."""
    out_size: int
    relu: bool
    """Whether a ReLU directly follows its batch normalization."""
    first: bool = False
    """The first one needs no gradient of its input."""

    @property
    def inputs(self) -> int:
        """Elements of the input, for one image."""
        return self.in_channels * self.in_size**2

    @property
    def outputs(self) -> int:
        """Elements of the output, for one image."""
        return self.out_channels * self.out_size**2

    @property
    def weights(self) -> int:
        """Elements of the kernel."""
        return self.in_channels * self.out_channels * self.kernel_size**2

    @property
    def multiply_adds(self) -> int:
        """Multiply-accumulates of the forward pass, for one image."""
        return self.weights * self.out_size**2


@dataclass(frozen=True)
class _Block:
    """One bottleneck: three convolutions, maybe one on the shortcut, an addition."""

    convolutions: tuple[Convolution, ...]
    inputs: int
    """Elements read by both the block and its shortcut, per image."""
    outputs: int
    """Elements of the sum, per image."""


@dataclass(frozen=True)
class GpuKernel:
    """One kernel's work for one image."""

    name: str
    flop: float
    elements: float
    """Elements of activations, gradients and weights read or written."""
    bytes_apart: float = 0.0
    """Bytes that do not scale with the precision of the activations."""


@dataclass(frozen=True)
class Bound:
    """Upper bound of the training rate of one GPU."""

    gpu_name: str
    fusion: Fusion
    images_per_second: float
    """Rate with each kernel limited by memory or arithmetic, whichever is slower."""
    memory_bound_share: float
    """Share of the time in memory-bound kernels."""
    bytes_per_image: float
    source: str
    """Source of the GPU's peak rates."""


@functools.cache  # a table and a live view ask again and again
def resnet50_bound(
    gpu_name: str,
    precision: str = "bf16",
    fusion: Fusion = "eager",
    batch_size: int = 256,
) -> Bound | None:
    """Return the maximum rate for training ResNet-50 v1.5 at 224 pixels."""
    if precision not in _BYTES_PER_ELEMENT:
        message = (
            f"precision={precision!r} has no ResNet-50 bound. Use one of "
            f"{', '.join(_BYTES_PER_ELEMENT)}."
        )
        raise ConfigError(message)
    peaks = gpu_peaks(gpu_name)
    flop_per_second = peaks.flop_per_second.get(precision) if peaks else None
    if peaks is None or flop_per_second is None:
        return None
    width = _BYTES_PER_ELEMENT[precision]
    kernels = resnet50_kernels(fusion, precision, batch_size)
    memory = [
        (kernel.elements * width + kernel.bytes_apart)
        / peaks.memory_bandwidth_bytes_per_second
        for kernel in kernels
    ]
    compute = [kernel.flop / flop_per_second for kernel in kernels]
    seconds = sum(map(max, memory, compute))
    memory_bound = sum(
        at_memory
        for at_memory, at_compute in zip(memory, compute, strict=True)
        if at_memory >= at_compute
    )
    return Bound(
        gpu_name=peaks.gpu_name,
        fusion=fusion,
        images_per_second=1 / seconds,
        memory_bound_share=memory_bound / seconds,
        bytes_per_image=sum(memory) * peaks.memory_bandwidth_bytes_per_second,
        source=peaks.source,
    )


def resnet50_convolutions() -> list[Convolution]:
    """Return the 53 convolutions of ResNet-50 v1.5 at 224 pixels."""
    blocks = list(_blocks())
    return [_stem(), *(conv for block in blocks for conv in block.convolutions)]


def resnet50_kernels(
    fusion: Fusion = "eager", precision: str = "bf16", batch_size: int = 256
) -> list[GpuKernel]:
    """Return the kernels of one training step of ResNet-50, per image."""
    if fusion not in get_args(Fusion):
        message = (
            f"fusion={fusion!r} is unknown. Use one of {', '.join(get_args(Fusion))}."
        )
        raise ConfigError(message)
    blocks = list(_blocks())
    kernels: list[GpuKernel] = []
    for conv in resnet50_convolutions():
        kernels += (
            _minimal_kernels(conv, batch_size)
            if fusion == "minimal"
            else _convolution_kernels(conv, batch_size)
        )
    if fusion == "eager":
        rectified = sum(conv.outputs for conv in resnet50_convolutions() if conv.relu)
        summed = sum(block.outputs for block in blocks)
        kernels += [
            GpuKernel("relu", 0, 2 * (rectified + summed)),
            GpuKernel("relu backward", 0, 3 * (rectified + summed)),
            GpuKernel("add", 0, 3 * summed),
        ]
    if fusion == "fused":
        # The kernel that applies batch normalisation also reads the shortcut.
        kernels.append(GpuKernel("add", 0, sum(block.outputs for block in blocks)))
    return kernels + _shared_kernels(blocks, precision, batch_size)


def _stem() -> Convolution:
    return Convolution(
        in_channels=3,
        out_channels=64,
        kernel_size=7,
        in_size=_IMAGE_SIZE,
        out_size=_IMAGE_SIZE // 2,
        relu=True,
        first=True,
    )


def _blocks() -> Iterator[_Block]:
    size = _IMAGE_SIZE // 4  # after the stem and the max-pool
    channels = 64
    for stage, (width, count) in enumerate(_STAGES):
        for number in range(count):
            out_size = size // 2 if stage > 0 and number == 0 else size
            out_channels = width * _EXPANSION
            convolutions = [
                Convolution(channels, width, 1, size, size, relu=True),
                Convolution(width, width, 3, size, out_size, relu=True),
                Convolution(width, out_channels, 1, out_size, out_size, relu=False),
            ]
            if number == 0:  # the shortcut has to change its shape
                convolutions.append(
                    Convolution(channels, out_channels, 1, size, out_size, relu=False)
                )
            yield _Block(
                tuple(convolutions), channels * size**2, out_channels * out_size**2
            )
            channels, size = out_channels, out_size


def _convolution_kernels(conv: Convolution, batch_size: int) -> list[GpuKernel]:
    """Return a convolution's own kernels and those of its batch normalisation."""
    flop = 2 * conv.multiply_adds
    # Forward, weight gradient and input gradient each touch the input (or its
    # gradient), the output (or its gradient) and the weights.
    moved = conv.inputs + conv.outputs + conv.weights / batch_size
    kernels = [
        GpuKernel("conv", flop, moved),
        GpuKernel("conv weight grad", flop, moved),
    ]
    if not conv.first:
        kernels.append(GpuKernel("conv input grad", flop, moved))
    return [
        *kernels,
        GpuKernel("bn statistics", 0, conv.outputs),
        GpuKernel("bn apply", 0, 2 * conv.outputs),
        GpuKernel("bn backward reduce", 0, 2 * conv.outputs),
        GpuKernel("bn backward apply", 0, 3 * conv.outputs),
    ]


def _minimal_kernels(conv: Convolution, batch_size: int) -> list[GpuKernel]:
    """Return two kernels: forward, and both gradients in one pass over dY."""
    flop = 2 * conv.multiply_adds
    weights = conv.weights / batch_size
    # Backward reads the output's gradient, the output (to normalise again) and the
    # input; it writes the input's gradient.
    gradients = 1 if conv.first else 2
    return [
        GpuKernel("conv", flop, conv.inputs + conv.outputs + weights),
        GpuKernel(
            "conv backward",
            flop * gradients,
            2 * conv.outputs + gradients * conv.inputs + 2 * weights,
        ),
    ]


def _shared_kernels(
    blocks: list[_Block], precision: str, batch_size: int
) -> list[GpuKernel]:
    """Return what every way of cutting the step has in common."""
    pool_in, pool_out = _stem().outputs, blocks[0].inputs
    features = blocks[-1].outputs
    width = _STAGES[-1][0] * _EXPANSION
    dense = width * _CLASSES
    parameters = (
        sum(conv.weights + 2 * conv.out_channels for conv in resnet50_convolutions())
        + dense
        + _CLASSES
    )
    bytes_per_parameter = _OPTIMIZER_BYTES_PER_PARAMETER
    if _BYTES_PER_ELEMENT[precision] == 2:
        bytes_per_parameter += _CAST_BYTES_PER_PARAMETER
    return [
        # A block's input gets a gradient from the block and one from the shortcut.
        GpuKernel("shortcut grad add", 0, 3 * sum(block.inputs for block in blocks)),
        GpuKernel("max pool", 0, pool_in + pool_out),
        GpuKernel("max pool backward", 0, pool_in + pool_out),
        GpuKernel("average pool", 0, features + width),
        GpuKernel("average pool backward", 0, features + width),
        GpuKernel("dense", 2 * dense, width + _CLASSES + dense / batch_size),
        GpuKernel(
            "dense backward", 4 * dense, 2 * (width + _CLASSES + dense / batch_size)
        ),
        GpuKernel("optimizer", 0, 0, bytes_per_parameter * parameters / batch_size),
    ]
