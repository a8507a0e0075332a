"""Convolutions of several workers as products of matrices.

torch.func.vmap makes one grouped convolution of them. Some of these are slow by cuDNN's
reproducible kernels: where the result has few pixels, with a stride, and for filters of one pixel.
Here each worker's image patches are the rows of a matrix, and one batched product multiplies them
with each worker's filters, 1.1 to 10 times as fast as with TF32 (see benchmarks/README.md).
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]
_FEW_PIXELS, _MANY_WEIGHTS = 4, 2**14


class ByMatrices(TorchFunctionMode):
    """Context in which some convolutions under vmap are products of matrices, and BatchNorm takes
    images of half precision.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return _INSTEAD.get(func, func)(*args, **(kwargs or {}))


def _batch_norm(input: Tensor, *rest: Any, weight: Tensor | None = None, **options: Any) -> Tensor:
    """Compute in the precision of the weights, as kernels do that vmap does not reach."""
    dtype = input.dtype if weight is None else weight.dtype
    found = functional.batch_norm(input.to(dtype), *rest, weight=weight, **options)
    return found.to(input.dtype)


def _convolution(
    images: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    plain = groups == 1 and _pair(dilation) == (1, 1) and not isinstance(padding, str)
    if not plain or not is_faster(images.shape, weights.shape, _pair(stride), _pair(padding)):
        return torch.conv2d(images, weights, bias, stride, padding, dilation, groups)
    kind = images.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        images, weights = images.to(dtype), weights.to(dtype)
    found: Any = _Convolution.apply(images, weights, _pair(stride), _pair(padding))
    return found if bias is None else found + bias.to(found.dtype)[:, None, None]


_INSTEAD: dict[Any, Any] = {torch.conv2d: _convolution, functional.batch_norm: _batch_norm}


def is_faster(images: Sequence[int], weights: Sequence[int], stride: Pair, padding: Pair) -> bool:
    """Return True if a product is faster than a grouped convolution of tensors of these shapes."""
    kernel = tuple(weights[2:])
    height, width = (
        (size + 2 * more - length) // step + 1
        for size, more, length, step in zip(images[2:], padding, kernel, stride, strict=True)
    )
    if stride != (1, 1) or kernel == (1, 1) or height * width <= _FEW_PIXELS:
        return True
    rounded = torch.backends.cudnn.allow_tf32  # else cuDNN's kernels are slow for many filters
    return not rounded and math.prod(weights) >= _MANY_WEIGHTS


class _Convolution(Function):
    """Convolution of images [N, C, H, W] with weights [O, C, kernel height, kernel width]."""

    @staticmethod
    def forward(images: Tensor, weights: Tensor, stride: Pair, padding: Pair) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return torch.conv2d(images, weights, None, stride, padding)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        images, weights, ctx.stride, ctx.padding = inputs
        ctx.save_for_backward(images, weights)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found: Any = _Gradients.apply(gradient, *ctx.saved_tensors, ctx.stride, ctx.padding)
        return *found, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        images, weights, (stride, padding) = *_stacked(info, in_dims, inputs, 2), inputs[2:]
        rows, size = _rows(images, weights, stride, padding)
        found = torch.bmm(rows, weights.flatten(2).transpose(1, 2))
        by_image = found.view(*images.shape[:2], *size, -1).permute(0, 1, 4, 2, 3)
        # not `contiguous`, which keeps the strides of one pixel: vmap cannot transform a BatchNorm
        # whose images look as if their channels were last
        return by_image.clone(memory_format=torch.contiguous_format), 0


class _Gradients(Function):
    """Gradients by images and weights, from the gradient by the convolution's result."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient: Tensor, images: Tensor, weights: Tensor, stride: Pair, padding: Pair
    ) -> tuple[Tensor, Tensor]:
        pairs = [*stride], [*padding], [1, 1]  # dilation
        both: Any = torch.ops.aten.convolution_backward(
            gradient, images, weights, None, *pairs, False, [0, 0], 1, (True, True, False)
        )
        return both[0], both[1]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None: ...

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[tuple[Tensor, Tensor], Pair]:
        gradient, images, weights = _stacked(info, in_dims, inputs, 3)
        stride, padding = inputs[3:]
        rows, (height, width) = _rows(images, weights, stride, padding)
        by_row = gradient.permute(0, 1, 3, 4, 2).reshape(*rows.shape[:2], -1)
        by_weights = torch.bmm(by_row.transpose(1, 2), rows).view(weights.shape)
        patches = torch.bmm(by_row, weights.flatten(2)).view(-1, height * width, rows.shape[2])
        size, kernel = images.shape[3:], weights.shape[3:]
        by_images = functional.fold(patches.transpose(1, 2), size, kernel, 1, padding, stride)
        return (by_images.view(images.shape), by_weights), (0, 0)


def _rows(images: Tensor, weights: Tensor, stride: Pair, padding: Pair) -> tuple[Tensor, Pair]:
    """Return the patches of each worker's images that filters are multiplied with, and the height
    and width of the result: [workers, N * height * width, C * kernel height * kernel width].
    """
    up, left = padding
    padded = functional.pad(images, (left, left, up, up)) if up or left else images
    kernel_height, kernel_width = weights.shape[3:]
    patches = padded.unfold(3, kernel_height, stride[0]).unfold(4, kernel_width, stride[1])
    workers, samples, _, height, width = patches.shape[:5]
    rows = patches.permute(0, 1, 3, 4, 2, 5, 6)
    return rows.reshape(workers, samples * height * width, -1), (height, width)


def _stacked(info: Any, in_dims: Any, inputs: Any, number: int) -> list[Tensor]:
    """Return the first tensors with workers as their first dimension."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if place is None else tensor.movedim(place, 0)
        for tensor, place in zip(inputs[:number], in_dims[:number], strict=True)
    ]


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else tuple(value)
