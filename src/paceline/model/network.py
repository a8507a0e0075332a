"""Builds a classification network of torchvision by its name, adapted to a data set's images."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from paceline.errors import SettingError, did_you_mean


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


SMALL_IMAGE = 64  # pixels; the first convolution does not shrink images up to this size


def torchvision_network(
    name: str, image_shape: Sequence[int], num_classes: int, normalization: str
) -> nn.Module:
    """Build an untrained network that maps images [N, C, H, W] to logits [N, num_classes].

    The first convolution is replaced if necessary, so that it takes C channels. For images of up
    to 64 pixels a side it becomes 3x3 with stride 1, unless it cuts an image into patches for a
    transformer. The pool after it is kept: ResNet-18 then trains about 160 images/s (32x32, batch
    64) on a CPU core, and without the pool a third of that. Auxiliary heads are left out.

    `normalization`: "batch" changes nothing, and "group" replaces every BatchNorm by a GroupNorm.

    Raises SettingError("model.network.name") for an unknown name (with close matches) and for a
    network that cannot process such images. Raises SettingError("model.network.normalization") for
    an unknown normalization, and for "group" if the network has no BatchNorm.
    """
    network = _build(name, image_shape, num_classes)
    _adapt_first_convolution(network, image_shape)
    if normalization not in ("batch", "group"):
        message = f"{normalization!r} is none of batch, group"
        raise SettingError("model.network.normalization", message)
    if normalization == "group" and not replace_batch_norm(network):
        message = f"{name} has no BatchNorm that a GroupNorm could replace"
        raise SettingError("model.network.normalization", message)
    _check_passes(network, name, image_shape)
    return network


def timm_network(name: str, image_shape: Sequence[int], num_classes: int) -> nn.Module:
    """Build an untrained network of timm that maps images [N, C, H, W] to logits [N, num_classes].

    Records may name no other argument of timm's, by which weights would be loaded. Raises
    SettingError("model.network.name") if timm is not installed, and for an unknown name.
    """
    try:
        import timm
    except ImportError as error:
        raise SettingError("model.network.name", "timm is missing: pip install timm") from error
    if not timm.is_model(name):
        message = f"timm has no {name!r}{did_you_mean(name, timm.list_models())}"
        raise SettingError("model.network.name", message)
    sizes: Any = {"in_chans": image_shape[0], "num_classes": num_classes}
    try:
        return timm.create_model(name, img_size=tuple(image_shape[1:]), **sizes)
    except TypeError:  # networks of convolutions take no size
        return timm.create_model(name, **sizes)


def network_names() -> list[str]:
    """Return the names of all classification networks of torchvision."""
    from torchvision import models  # late import: torchvision takes seconds

    return models.list_models(module=models)


def published_image_shape(name: str) -> tuple[int, int, int] | None:
    """Return the shape [C, H, W] of the images for which torchvision's first set of weights of a
    network is published; None for the name of another network.
    """
    if name not in network_names():
        return None
    from torchvision import models

    (side,) = next(iter(models.get_model_weights(name))).transforms().crop_size
    return 3, side, side


def _build(name: str, image_shape: Sequence[int], num_classes: int) -> nn.Module:
    from torchvision import models

    names = network_names()
    if name not in names:
        message = f"torchvision has no {name!r}{did_you_mean(name, names)}"
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
