"""Classification networks of torchvision and timm by their names, also without memory for weights.

timm is optional: its networks have names only where it is installed.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from torch import nn

from paceline.errors import SettingError

_WITHOUT_TIMM = "timm is not installed, which has many more: pip install timm"


def library_of(name: str) -> str | None:
    """Return which library has a network of this name: torchvision, timm, or None for neither."""
    if name in _torchvision_names():
        return "torchvision"
    if find_spec("timm") is None:
        return None
    import timm  # late: seconds

    return "timm" if timm.is_model(name) else None


def library_names() -> list[str]:
    """Return the names of all networks of torchvision, and of timm where it is installed."""
    names = _torchvision_names()
    if find_spec("timm") is None:
        return names
    import timm

    return [*names, *timm.list_models()]


def hint() -> str:
    """Return what a message about an unknown network adds, or ""."""
    return "" if find_spec("timm") else f"; {_WITHOUT_TIMM}"


def own_image_shape(name: str) -> tuple[int, int, int] | None:
    """Return the shape [C, H, W] of the images for which a network is published; None if no library
    has it. For torchvision this is the shape of its first set of weights.
    """
    library = library_of(name)
    if library == "torchvision":
        from torchvision import models

        (side,) = next(iter(models.get_model_weights(name))).transforms().crop_size
        return 3, side, side
    if library == "timm":
        import timm

        config = timm.get_pretrained_cfg(name)
        return tuple(config.input_size) if config else (3, 224, 224)  # pyright: ignore[reportReturnType]
    return None


def timm_network(name: str, image_shape: Sequence[int], num_classes: int) -> nn.Module:
    """Build an untrained network of timm that maps images [N, C, H, W] to logits [N, num_classes].

    Raises SettingError("model.network.name") if timm is not installed, and for an unknown name.
    """
    if find_spec("timm") is None:
        raise SettingError("model.network.name", _WITHOUT_TIMM)
    import timm

    if not timm.is_model(name):
        near = ", ".join(timm.list_models(f"*{name.split('_')[0]}*")[:3])
        message = f"timm has no {name!r}{near and f'; perhaps {near}'}"
        raise SettingError("model.network.name", message)
    sizes: Any = {"in_chans": image_shape[0], "num_classes": num_classes}
    try:
        return timm.create_model(name, img_size=tuple(image_shape[1:]), **sizes)
    except TypeError:  # networks of convolutions take no size
        return timm.create_model(name, **sizes)


def without_weights(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the network that `build` makes, with its parameters on the meta device, so that
    neither memory nor time is spent on their values. A network that computes while it is built is
    built as usual. No other thread may build a network meanwhile.
    """
    try:
        with _parameters_on_meta():
            return build()
    except Exception:  # of any kind, as networks are foreign code; an error of its own comes again
        return build()


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    register: Callable[..., None] = nn.Module.register_parameter

    def on_meta(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None and not param.is_meta:
            param = nn.Parameter(param.to("meta"), param.requires_grad)
        register(self, name, param)

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def _torchvision_names() -> list[str]:
    from torchvision import models  # late: seconds

    return models.list_models(module=models)
