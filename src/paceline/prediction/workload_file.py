"""Counts a network, and writes its size as a file of conf/workload."""

import re
from pathlib import Path

from paceline.errors import SettingError
from paceline.exchange.shard import imbalance
from paceline.model.count_layers import count_layers
from paceline.model.network_size import Layer, NetworkSize
from paceline.record.point_config import PointConfig

_TEXT = """\
# {name}: {megabytes:.1f} MB of weights, {gigaflops:.2f} G multiply-adds for an image. Counted by
# paceline {command}
_target_: paceline.timing.workload.CountedNetwork
name: {name}
image_shape: [{image_shape}]
num_classes: {num_classes}
tensors: [{tensors}] # weights of each parameter
layers: # in the order of forward: name, weights, multiply-adds and activations of one image
{layers}
"""
_MOST_SERVERS = 16
_NAME = re.compile(r"[a-z]\w*")


def count(config: PointConfig) -> NetworkSize:
    """Count the network of a point's model, for images of its data set's shape.

    Raises SettingError("batch_size") for a size that cannot be one.
    """
    size = config.values["batch_size"]
    if not isinstance(size, int) or size < 1:
        raise SettingError("batch_size", f"a number of images is needed, not {size!r}")
    return count_layers(config.target("model").build(), config.values["data"]["image_shape"])


def cells(layer: Layer) -> dict[str, str]:
    """Return a row of the table in the terminal; all but weights is for one image."""
    return {
        "layer": layer.name or "(itself)",
        ">weights": f"{layer.weights:,}",
        ">multiply-adds": f"{layer.multiply_adds:,}",
        ">activations": f"{layer.activations:,}",
    }


def totals(size: NetworkSize, batch_size: int) -> list[str]:
    """Return lines about a step of `batch_size`, and about servers that share whole tensors."""
    found = [
        f"weights {size.weight_bytes / 1e6:,.1f} MB; at batch size {batch_size:,}: activations "
        f"{size.activation_bytes(batch_size) / 1e6:,.1f} MB, a step "
        f"{size.flops(batch_size) / 1e12:,.3g} TFLOP"
    ]
    most = min(_MOST_SERVERS, len(size.tensors))
    shares = [f"{n}: {imbalance(size.tensors, n):.2f}" for n in range(1, most + 1)]
    if shares:
        head = f"{len(size.tensors)} tensors in turn over servers, largest share / mean:"
        found.append(f"{head} {', '.join(shares)}")
    return found


def write(config: PointConfig, size: NetworkSize, name: str, command: str, folder: Path) -> Path:
    """Write the size as `folder`/`name`.yaml, replacing it; return its path.

    `command`: arguments of paceline that count this network. Raises SettingError("write") for a
    name that cannot be chosen on the command line.
    """
    if not _NAME.fullmatch(name) or name in ("own", "sized"):
        raise SettingError("write", f"{name!r} is no name for a workload: small letters, digits, _")
    data = config.values["data"]
    text = _TEXT.format(
        name=name,
        megabytes=size.weight_bytes / 1e6,
        gigaflops=size.multiply_adds / 1e9,
        command=command,
        image_shape=", ".join(map(str, data["image_shape"])),
        num_classes=data["num_classes"],
        tensors=", ".join(map(str, size.tensors)),
        layers="\n".join(f"  - [{', '.join(map(str, layer))}]" for layer in size.layers),
    )
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(text)
    return partial.replace(path)
