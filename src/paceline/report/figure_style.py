"""Defines one style for all figures; equal numbers result in equal bytes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

# Okabe and Ito (2008), distinct for colour-blind readers, too; the last five after Tol's "muted"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
COLOURS += ("#332288", "#882255", "#999933", "#8C510A", "#AA4499")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "p", ">", "*", "h")
LINES = {"measured": "-", "paced": "--", "virtual": ":", "predicted": "-."}
_SETTINGS = {
    "svg.hashsalt": "paceline",
    "svg.fonttype": "path",  # the reader's fonts would move the text
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
}


@contextmanager
def figure_settings() -> Iterator[None]:
    """Apply the style to all figures that are made and written within the context."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own matplotlibrc would change the bytes
        for name, value in _SETTINGS.items():
            matplotlib.rcParams[name] = value  # pyright: ignore[reportArgumentType]
        yield


def scheme_style(scheme: str, schemes: Sequence[str]) -> tuple[str, str]:
    """Return the colour and the marker of `scheme`.

    They are the same in every figure of a study, and distinct for up to 144 schemes.
    """
    cycle, index = divmod(list(schemes).index(scheme), len(COLOURS))
    return COLOURS[index], MARKERS[(index + cycle) % len(MARKERS)]


def percent_ticks() -> FuncFormatter:
    """Format ticks of shares as percent."""
    return FuncFormatter(lambda share, _: f"{100 * share:.6g} %")


def as_svg(figure: Figure) -> str:
    """Return `figure` as the text of an SVG file, without date and version."""
    FigureCanvasSVG(figure)
    stream = StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(stream, format="svg", metadata=nothing)
    lines = stream.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def thousands(value: float, _position: int) -> str:
    """Format a tick of an axis, without decimals if it is large."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:g}"
