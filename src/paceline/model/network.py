"""Builds a classification network of torchvision by its name, adapted to a data set's images."""

import difflib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from paceline.errors import SettingError


def normalization_layer(kind: str, channels: int) -> nn.Module:
    """Build a normalization layer for values [N, channels, H, W].

    `kind`: "batch" for BatchNorm, "group" for GroupNorm, or "none" for a layer that changes
    nothing. Raises SettingError("model.network.normalization") for another kind.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "group":
        return nn.GroupNorm(num_groups(channels), channels)
    if kind == "none":
        return nn.Identity()
    message = f"{kind!r} is none of batch, group, none"
    raise SettingError("model.network.normalization", message)


def num_groups(channels: int) -> int:
    """Return the number of groups of a GroupNorm, at most 32 (Wu 2018, arXiv:1803.08494).

    Groups have equal sizes and at least 4 channels each; if that is impossible, the number is 1.
    """
    return max(
        groups for groups in (1, 2, 4, 8, 16, 32) if groups == 1 or channels % (4 * groups) == 0
    )


def replace_batch_norm(network: nn.Module) -> int:
    """Replace every BatchNorm2d by a GroupNorm; return the number of replaced layers."""
    places = [
        (parent, name, child.num_features)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.BatchNorm2d)
    ]
    for parent, name, channels in places:
        setattr(parent, name, normalization_layer("group", channels))
    return len(places)


@torch.no_grad()
def remove_batch_norm(network: nn.Module) -> bool:
    """Remove every BatchNorm from one of torchvision's ResNets; return False for other networks.

    Convolutions get a bias, which BatchNorm made superfluous. Weights are initialised by rules 1
    and 2 of Fixup (Zhang 2019, arXiv:1901.09321). The last convolution of each residual branch and
    the classifier begin at zero. With L branches of m convolutions each, the other convolutions of
    branches begin with He's values for ReLUs (He 2015), times L^(-1/(2m-2)). The multipliers of
    Fixup's rule 3 are left out.
    """
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet  # late: seconds

    if not isinstance(network, ResNet):
        return False
    _replace_by_biases(network)
    blocks = [each for each in network.modules() if isinstance(each, BasicBlock | Bottleneck)]
    for block in blocks:
        *inner, last = [each for each in block.children() if isinstance(each, nn.Conv2d)]
        for convolution in inner:
            convolution.weight.mul_(len(blocks) ** (-1 / (2 * len(inner))))
        last.weight.zero_()
    network.fc.weight.zero_()
    network.fc.bias.zero_()
    return True


def _replace_by_biases(network: nn.Module) -> None:
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.Identity())
            elif isinstance(child, nn.Conv2d):
                nn.init.kaiming_normal_(child.weight, nonlinearity="relu")
                child.bias = nn.Parameter(torch.zeros(child.out_channels))


def has_normalization(network: nn.Module) -> bool:
    """Return True if the network has a layer of torch or torchvision that normalises values."""
    return any("Norm" in type(each).__name__ for each in network.modules())


SMALL_IMAGE = 64  # pixels; the first convolution does not shrink images up to this size


def torchvision_network(
    name: str, image_shape: Sequence[int], num_classes: int, normalization: str
) -> nn.Module:
    """Build an untrained network that maps images [N, C, H, W] to logits [N, num_classes].

    The first convolution is replaced if necessary, so that it takes C channels. For images of up
    to 64 pixels a side it becomes 3x3 with stride 1, unless it cuts an image into patches for a
    transformer. The pool after it is kept: ResNet-18 then trains about 160 images/s (32x32, batch
    64) on a CPU core, and without the pool a third of that. Auxiliary heads are left out.

    `normalization`: "batch" changes nothing, "group" replaces every BatchNorm by a GroupNorm, and
    "none" removes BatchNorm from ResNets; for "none", other networks must have no normalization.

    Raises SettingError("model.network.name") for an unknown name (with close matches) and for a
    network that cannot process such images. Raises SettingError("model.network.normalization") for
    an unknown normalization, for "group" if the network has no BatchNorm, and for "none" if the
    network normalises and is no ResNet.
    """
    network = _build(name, image_shape, num_classes)
    _adapt_first_convolution(network, image_shape)
    _choose_normalization(network, name, normalization)
    _check_passes(network, name, image_shape)
    return network


def _build(name: str, image_shape: Sequence[int], num_classes: int) -> nn.Module:
    from torchvision import models  # late import: torchvision takes seconds

    names = models.list_models(module=models)
    if name not in names:
        matches = difflib.get_close_matches(name, names) or names
        message = f"torchvision classifies with no {name!r}; perhaps {', '.join(matches)}"
        raise SettingError("model.network.name", message)
    try:
        arguments = _family_arguments(name, image_shape)
        return models.get_model(name, weights=None, num_classes=num_classes, **arguments)
    except (AssertionError, RuntimeError, ValueError) as error:
        raise _unfit(name, image_shape, error) from error


def _family_arguments(name: str, image_shape: Sequence[int]) -> dict[str, object]:
    """Return the arguments that a family of networks needs besides the number of classes."""
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        return {"image_size": image_shape[1]}
    if name.startswith("maxvit_"):
        return {"input_size": tuple(image_shape[1:])}
    return {}


def _adapt_first_convolution(network: nn.Module, image_shape: Sequence[int]) -> None:
    path, old = next(
        (path, module) for path, module in network.named_modules() if isinstance(module, nn.Conv2d)
    )
    cuts_patches = old.kernel_size == old.stride
    keeps_pixels = max(image_shape[1:]) <= SMALL_IMAGE and not cuts_patches
    if old.in_channels == image_shape[0] and not keeps_pixels:
        return
    kept: tuple[Any, ...] = (old.kernel_size, old.stride, old.padding)
    geometry = (3, 1, 1) if keeps_pixels else kept
    new = nn.Conv2d(image_shape[0], old.out_channels, *geometry, bias=old.bias is not None)
    _initialise_like(new, old)
    network.set_submodule(path, new)


@torch.no_grad()
def _initialise_like(new: nn.Conv2d, old: nn.Conv2d) -> None:
    """Initialise `new` so that its outputs have the same variance as the outputs of `old`."""
    if old.weight.is_meta:
        return
    inputs_ratio = old.weight[0].numel() / new.weight[0].numel()
    new.weight.normal_(std=float(old.weight.std()) * inputs_ratio**0.5)
    if old.bias is not None and new.bias is not None:
        new.bias.copy_(old.bias)


def _choose_normalization(network: nn.Module, name: str, normalization: str) -> None:
    message = None
    if normalization not in ("batch", "group", "none"):
        message = f"{normalization!r} is none of batch, group, none"
    elif normalization == "group" and not replace_batch_norm(network):
        message = f"{name} has no BatchNorm that a GroupNorm could replace"
    elif normalization == "none" and not remove_batch_norm(network) and has_normalization(network):
        message = f"{name} has layers that normalise, which only ResNets can do without"
    if message:
        raise SettingError("model.network.normalization", message)


@torch.no_grad()
def _check_passes(network: nn.Module, name: str, image_shape: Sequence[int]) -> None:
    """Run a forward pass on the meta device, which propagates shapes without arithmetic.

    Raises SettingError("model.network.name") if the network cannot process such images.
    """
    state = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    shapes = {key: torch.empty_like(value, device="meta") for key, value in state.items()}
    images = torch.empty(2, *image_shape, device="meta")
    network.eval()
    try:
        torch.func.functional_call(network, shapes, (images,))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise _unfit(name, image_shape, error) from error
    finally:
        network.train()


def _unfit(name: str, image_shape: Sequence[int], error: Exception) -> SettingError:
    shape = "x".join(map(str, image_shape))
    return SettingError("model.network.name", f"{name} cannot take {shape} images: {error}")
