"""Line about a point that has ended: its settings, and what came of it."""

from paceline.record.point_config import PointConfig
from paceline.record.record import Result


def result_line(number: int | None, config: PointConfig, result: Result, note: str) -> str:
    """Return the line. `number`: position in a multirun, from 1; None outside one."""
    values = config.values
    settings = (
        f"{config.names['scheme']} workers={values['workers']} "
        f"batch_size={values['batch_size']} lr={config.lr} seed={config.seed}"
    )
    outcome = result["status"]
    if result["reason"]:  # also of a finished run: a worker was lost
        outcome += f" ({result['reason']})"
    if result["images_per_second"]:
        outcome += f", {result['images_per_second']:,.0f} images/s {result['kind']}"
    if result["top1"] is not None:
        outcome += f", top-1 {100 * result['top1']:.2f} %"
    start = f"point {number}: " if number else ""
    return f"{start}{settings}: {outcome}, {note}"
