"""A multirun ends with means over seeds."""

import math

from paceline.command.means_view import means_view
from paceline.study.study_points import Study
from tests.made_records import make_record
from tests.small_study import write_small_study

T = 12.706204736  # Student's t at 0.975, one degree of freedom


def test_means_are_over_the_seeds_of_a_configuration(root):
    write_small_study(root, "made", {"scheme": "gossip,sync_allreduce", "seed": "0,1"})
    changes = [
        {"test_top1": 0.5, "images_per_second": 60.0},
        {"test_top1": 0.504, "images_per_second": 66.0},
        {"test_top1": 0.875, "images_per_second": 25.0},
        {"status": "failed", "test_top1": None},
    ]
    for point, changed in zip(Study("made", root).points, changes, strict=True):
        make_record(point.folder, point.config, **changed)
    table, following = means_view(Study("made", root).points)
    assert [column.header.plain for column in table.columns] == [
        *("scheme", "top-1, test", "images/s", "finished"),
    ]
    least, most = 50.2 - 100 * T * 0.002, 50.2 + 100 * T * 0.002
    mean, factor = math.sqrt(60 * 66), math.exp(T * math.log(66 / 60) / 2)
    rate = f"{mean:.0f} ({mean / factor:.0f} to {mean * factor:.0f}), n = 2"
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert [*zip(*cells, strict=True)] == [
        ("gossip", f"50.20 % ({least:.2f} to {most:.2f}), n = 2", rate, "2 of 2 measured"),
        (
            "sync_allreduce",
            *(f"{mean} (no interval), n = 1" for mean in ("87.50 %", "25")),
            "1 of 2 measured",
        ),
    ]
    assert following == "next: paceline report made"
