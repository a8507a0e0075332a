"""Writes the size of a network as a table, and as a file of conf/workload."""

import re
from pathlib import Path

from paceline.errors import SettingError
from paceline.exchange.shard import imbalance
from paceline.model.count_layers import count_layers
from paceline.model.network_size import NetworkSize
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


def table(size: NetworkSize, batch_size: int) -> str:
    """Return all layers and the totals as text; the last lines are for a step of `batch_size`, and
    for servers that share whole tensors.
    """
    rows = [("layer", "weights", "multiply-adds", "activations")]
    rows += [(layer.name or "(itself)", *(f"{n:,}" for n in layer[1:])) for layer in size.layers]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{row[0]:{widths[0]}}  " + "  ".join(f"{row[n]:>{widths[n]}}" for n in (1, 2, 3))
        for row in rows
    ]
    return "\n".join(
        [
            *lines,
            f"weights {size.weight_bytes / 1e6:,.1f} MB; at batch size {batch_size:,}: activations "
            f"{size.activation_bytes(batch_size) / 1e6:,.1f} MB, a step "
            f"{size.flops(batch_size) / 1e12:,.3g} TFLOP",
            *_imbalances(size),
        ]
    )


def _imbalances(size: NetworkSize) -> list[str]:
    """Return a line about the shares of servers by scheme.sharding=round_robin."""
    most = min(_MOST_SERVERS, len(size.tensors))
    found = [f"{n}: {imbalance(size.tensors, n):.2f}" for n in range(1, most + 1)]
    if not found:
        return []
    head = f"{len(size.tensors)} tensors in turn over servers, largest share / mean:"
    return [f"{head} {', '.join(found)}"]


def write(config: PointConfig, size: NetworkSize, name: str, command: str, folder: Path) -> Path:
    """Write the size as `folder`/`name`.yaml, replacing it; return its path.

    `command`: arguments of paceline that count this network. Raises SettingError("write") for a
    name that cannot be chosen on the command line.
    """
    if not _NAME.fullmatch(name) or name in ("own", "sized"):
        raise SettingError("write", f"{name!r} is no name for a workload: small letters, digits, _")
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(_text(config, size, name, command))
    return partial.replace(path)


def _text(config: PointConfig, size: NetworkSize, name: str, command: str) -> str:
    data = config.values["data"]
    return _TEXT.format(
        name=name,
        megabytes=size.weight_bytes / 1e6,
        gigaflops=size.multiply_adds / 1e9,
        command=command,
        image_shape=", ".join(map(str, data["image_shape"])),
        num_classes=data["num_classes"],
        tensors=", ".join(map(str, size.tensors)),
        layers="\n".join(f"  - [{', '.join(map(str, layer))}]" for layer in size.layers),
    )
