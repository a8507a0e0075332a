"""Measure this machine, or count a network; settings may follow, as in train.

Measured: conf/cluster/this_machine.yaml, for `cluster=this_machine`. The settings choose what it
computes: model=resnet18 batch_size=64. --count model=nin data=image_folder: weights, multiply-adds
and activations, layer by layer. --write NAME: conf/cluster/NAME.yaml or conf/workload/NAME.yaml.
"""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.errors import SettingError, tell

if TYPE_CHECKING:  # torch takes seconds
    from paceline.model.network_size import Layer, NetworkSize
    from paceline.record.point_config import PointConfig

_NAME = r"[a-z]\w*"  # that the command line accepts
_WORKLOAD = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name = "write conf/cluster/NAME.yaml, not this_machine.yaml, or conf/workload/NAME.yaml"
    parser.add_argument("--write", metavar="NAME", help=name)
    parser.add_argument("--count", action="store_true", help="count the network of these settings")


def run(options: argparse.Namespace, root: Path) -> int:
    from paceline.study.compose import composed

    config = composed(options.overrides, root)
    return (_count if options.count else _measure)(config, options, root)


def _measure(config: "PointConfig", options: argparse.Namespace, root: Path) -> int:
    """Measure this machine, which must be otherwise idle; takes four minutes."""
    from paceline.cluster.processes import preload
    from paceline.cluster.supervisor import ProcessFailure

    preload()  # of torch and Lightning in the background, while they are imported here
    from paceline.command.terminal import show_rows
    from paceline.prediction.calibration import cluster_path, rows, write_cluster
    from paceline.prediction.measure import measure
    from paceline.record.point import Point

    path = cluster_path(root / "conf/cluster", options.write or "this_machine")
    try:
        measured = measure(config)
    except ProcessFailure as failure:
        tell(str(failure))
        return 1
    show_rows([{"measured": name, "": value} for name, value in rows(measured)])
    write_cluster(measured, Point.of(config), path)
    print(path.relative_to(root))
    return 0


def _count(config: "PointConfig", options: argparse.Namespace, root: Path) -> int:
    from paceline.command.terminal import show_rows

    size = count(config)
    show_rows([cells(layer) for layer in size.layers])
    print(total(size, config.values["batch_size"]))
    if options.write:
        command = " ".join(["calibrate --count", *options.overrides, "--write", options.write])
        path = write_workload(config, size, options.write, command, root / "conf/workload")
        print(path.relative_to(root))
    return 0


def count(config: "PointConfig") -> "NetworkSize":
    """Count the weights, multiply-adds and activations of a point's network, layer by layer.

    Images have the shape of the images in the point's data set. Raises SettingError("batch_size")
    for a batch size that is not a positive whole number.
    """
    from paceline.model.count_layers import count_layers

    size = config.values["batch_size"]
    if not isinstance(size, int) or size < 1:
        raise SettingError("batch_size", f"a number of images is needed, not {size!r}")
    return count_layers(config.target("model").build(), config.values["data"]["image_shape"])


def write_workload(
    config: "PointConfig", size: "NetworkSize", name: str, command: str, folder: Path
) -> Path:
    """Write or replace the workload `folder`/`name`.yaml, with a network's `size`; return its path.

    `command`: arguments with which `paceline` counts this network again. Raises
    SettingError("write") for a name that the command line does not accept.
    """
    if not re.fullmatch(_NAME, name) or name in ("own", "sized"):
        raise SettingError("write", f"{name!r} is no name for a workload: small letters, digits, _")
    from paceline.prediction.calibration import replace_file

    data, path = config.values["data"], folder / f"{name}.yaml"
    text = _WORKLOAD.format(
        name=name,
        megabytes=size.weight_bytes / 1e6,
        gigaflops=size.multiply_adds / 1e9,
        command=command,
        image_shape=", ".join(map(str, data["image_shape"])),
        num_classes=data["num_classes"],
        tensors=", ".join(map(str, size.tensors)),
        layers="\n".join(f"  - [{', '.join(map(str, layer))}]" for layer in size.layers),
    )
    replace_file(path, text)
    return path


def cells(layer: "Layer") -> dict[str, str]:
    """Return the row of a layer in the table; all numbers but the weights are for one image."""
    return {
        "layer": layer.name or "(itself)",
        ">weights": f"{layer.weights:,}",
        ">multiply-adds": f"{layer.multiply_adds:,}",
        ">activations": f"{layer.activations:,}",
    }


def total(size: "NetworkSize", batch_size: int) -> str:
    """Return a line with the sums over all layers, for a step with `batch_size` images."""
    return (
        f"weights {size.weight_bytes / 1e6:,.1f} MB; at batch size {batch_size:,}: activations "
        f"{size.activation_bytes(batch_size) / 1e6:,.1f} MB, a step "
        f"{size.flops(batch_size) / 1e12:,.3g} TFLOP"
    )
