"""Step times that follow from FLOPs and an assumed utilisation, against published images/s.

`theirs` are the images/s of papers/step_times.csv, and `ours` those of the rule in
paceline/timing/chip.py, as geometric means over the networks of a kind (a class of timm or
torchvision). The ratio is the factor within which 90 % of them are.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import timm
import yaml
from torch import nn

from benchmarks.row import row
from paceline.model.count_layers import count_kept, count_layers, without_weights
from paceline.model.network_size import NetworkSize
from paceline.prediction.evidence import STEP_FACTOR
from paceline.timing import chip as rule
from paceline.timing.chip import Chip
from papers.published import factor

ROOT = Path(__file__).parents[1]
FITTED_TO = "rtx_3090"
FEWEST = 5  # networks of a kind that has a line of its own
# of the grid on which both shares are fitted
UTILISATIONS = np.round(np.arange(0.3, 0.81, 0.05), 2)
TRAFFICS = np.round(np.arange(0.1, 0.301, 0.01), 2)


@dataclass(frozen=True)
class Timed:
    """A network with its published images/s. `arithmetic`, `memory`: seconds of an image at the
    whole peak and bandwidth of the chip. `update`: seconds of the optimizer, of an image.
    """

    kind: str
    chip: str
    precision: str
    images_per_second: float
    arithmetic: float
    memory: float
    update: float

    def predicted(self, utilisation: float, traffic: float) -> float:
        """Return the images/s by the rule, for these shares of the peak and the bandwidth."""
        return 1 / (self.arithmetic / utilisation + self.memory / traffic + self.update)

    def by_rule(self) -> float:
        return self.predicted(chip_of(self.chip).utilisation[self.precision], rule.TRAFFIC)


@cache
def chip_of(name: str) -> Chip:
    text = (ROOT / f"conf/cluster/base/chip/{name}.yaml").read_text()
    return Chip(**yaml.safe_load(text))


def timed() -> Iterator[Timed]:
    """Yield the networks of papers/step_times.csv, counted."""
    with (ROOT / "papers/step_times.csv").open() as file:
        rows = list(csv.DictReader(file))
    for each in rows:
        chip, precision = chip_of(each["chip"]), each["precision"]
        kind, size, kept = _counted(each["network"], int(each["image_size"]))
        update = rule.UPDATE_PASSES * size.weight_bytes / chip.memory_bandwidth
        yield Timed(
            kind,
            each["chip"],
            precision,
            float(each["images_per_second"]),
            rule.FLOP * size.multiply_adds / chip.peak[precision],
            rule.PASSES * rule.activation_bytes(precision) * kept / chip.memory_bandwidth,
            update / int(each["batch_size"]),
        )


@cache
def _counted(network: str, side: int) -> tuple[str, NetworkSize, int]:
    built = without_weights(lambda: _network(network, side))
    size = count_layers(built, (3, side, side))
    return type(built).__name__, size, count_kept(built, (3, side, side))


def _network(name: str, side: int) -> nn.Module:
    try:
        return timm.create_model(name, img_size=side)
    except TypeError:  # networks of convolutions take no size
        return timm.create_model(name)


def of_kinds(networks: Sequence[Timed]) -> dict[str, list[Timed]]:
    found = defaultdict[str, list[Timed]](list)
    for each in networks:
        found[each.kind].append(each)
    return found


def errors_by_shares(networks: Sequence[Timed]) -> np.ndarray:
    """Return the logarithms of published / predicted [utilisations, traffics, networks]."""
    shares = TRAFFICS
    return np.array(
        [
            [[math.log(n.images_per_second / n.predicted(u, t)) for n in networks] for t in shares]
            for u in UTILISATIONS
        ]
    )


def best_shares(errors: np.ndarray, kinds: Sequence[str], without: str = "") -> tuple[int, int]:
    """Return the places of the shares with the least squares, with equal weight for each kind."""
    names = [*kinds]
    weights = np.array([0.0 if kind == without else 1 / names.count(kind) for kind in names])
    squares = (errors**2 * weights).sum(axis=-1)
    at = np.unravel_index(squares.argmin(), squares.shape)
    return int(at[0]), int(at[1])


def left_out_errors(networks: Sequence[Timed]) -> dict[tuple[str, str], list[float]]:
    """Return the errors of each kind, by shares that were fitted to all other kinds."""
    errors, kinds = errors_by_shares(networks), [each.kind for each in networks]
    found: dict[tuple[str, str], list[float]] = {}
    for kind in dict.fromkeys(kinds):
        u, t = best_shares(errors, kinds, kind)
        own = [n for n, each in enumerate(kinds) if each == kind]
        found["kind", kind] = errors[u, t, own].tolist()
    return found


def rows() -> list[dict[str, Any]]:
    networks = list(timed())
    fitted = [each for each in networks if each.chip == FITTED_TO]
    found = []
    for chip in dict.fromkeys(each.chip for each in networks):
        own = [each for each in networks if each.chip == chip]
        for precision in dict.fromkeys(each.precision for each in own):
            alike = [each for each in own if each.precision == precision]
            found.append(_line(f"{chip_of(chip).name}, {precision}", alike))
    kinds = of_kinds(fitted)
    several = {kind: each for kind, each in kinds.items() if len(each) >= FEWEST}
    found += [_line(f"  {kind}", several[kind]) for kind in sorted(several)]
    rest = [each for kind, own in kinds.items() if kind not in several for each in own]
    found.append(_line(f"  {len(kinds) - len(several)} further kinds", rest))
    errors = left_out_errors(fitted)
    within = factor(errors)
    name = f"{len(errors)} kinds, each predicted by shares that were fitted to the others"
    found.append(
        row(name, within, STEP_FACTOR, "", within, f"<= {STEP_FACTOR}", within <= STEP_FACTOR)
    )
    return found


def _line(name: str, networks: Sequence[Timed]) -> dict[str, Any]:
    predicted = [each.by_rule() for each in networks]
    published = [each.images_per_second for each in networks]
    ratios = np.log(np.array(predicted) / published)
    ours, theirs = (float(np.exp(np.log(each).mean())) for each in (predicted, published))
    covered = float(np.exp(np.quantile(np.abs(ratios), 0.9)))
    return row(f"{name}, n = {len(networks)}", ours, theirs, "images/s", covered, "shown", True)
