"""What is written of a made study with much to say is made_study.md, word by word.

It has the README, the metrics and the tables of the page. It is renewed by
`python -m tests.report.test_made_study`, and every change of it is to be explained.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from paceline.report.findings import read_findings
from paceline.report.page_tables import page_tables
from tests.made_decisions import AXES, arm, made_tuning, two_arms, write_decided
from tests.made_reports import fail, write_page

FILE = Path(__file__).with_name("made_study.md")
LINK, SERVERS = "cluster.link.bandwidth", "scheme.servers"
SETTINGS = {
    "training.epochs": 5,
    "training.samples": None,
    "training.rate": "tuned",
    "training.momentum": 0.9,
    "training.schedule": "cosine",
    "training.lr_rule": "linear",
    "measurement.evaluations": 50,
    "measurement.curve_images": 2000,
    "cluster.step_jitter": 0.2,
    "cluster.slow_factor": 2,
    "cluster.slow_workers": 1,
    "workload.num_bytes": 10**8,
}


def written(root):
    """Five schemes, some with servers by the number of workers, on two links and two machines."""
    other = {"hardware.cpu": "Another Processor", "hardware.gpus": '["NVIDIA H200"]'}
    free, slow = ({LINK: link} for link in (None, 1.25e8))
    runs = [run | link for link in (free, slow) for run in arm(*ALONE, workers=1)]
    runs += two_arms((301, 201), 4, **free) + two_arms((301, None), 8, **slow, num_parameters=98)
    runs += arm("local_sgd", 201, 0.9, **free, images_per_second=700.0, **other)
    for workers, top1 in ((4, 0.895), (8, 0.85)):
        own = free | {"workers": workers, SERVERS: workers // 2}
        runs += arm("async_parameter_server", 201, top1, **own)
        runs += arm("mixed", 251, 0.87, **own | {SERVERS: 1})
    runs[-1] = fail(runs[-1], "diverged", "weights are no longer finite") | {"crossing": None}
    more = {"kind": "virtual", "real_seconds": 70.0, "wall_seconds": 180.0}
    runs = [
        {SERVERS: None, "cluster.slow_workers": 1}
        | run
        | more
        | {
            "key": f"{number}",
            "images_per_second": run["images_per_second"] * (1 + number % 4 / 50),
        }
        for number, run in enumerate(runs)
    ]
    trials = made_tuning(runs, {"gossip": "highest learning rate"})
    for place, row in enumerate(trials, 1):
        row |= {"lr": place / 10, "own": "scheme.period=4" * (row["scheme"] == "local_sgd")}
    about = {"axes": [*AXES, LINK, SERVERS], "settings": SETTINGS, "tuning": [{"at": free}]}
    folder = write_decided(root / "made", runs, trials, missing=["0123456789ab"], **about)
    text = write_page(folder).with_name("README.md").read_text()
    text += f"\n## metrics.json\n\n{(folder / 'metrics.json').read_text()}"
    for table in page_tables(read_findings(folder)):
        rows = "\n".join(" | ".join(row) for row in (table.columns, *table.rows))
        text += f"\n## {table.name}\n\n{table.caption}\n\n{rows}\n"
    return text


ALONE = ("sync_allreduce", 801, 0.9)


def test_what_is_written_of_a_made_study_stays(tmp_path):
    assert written(tmp_path) == FILE.read_text()


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        FILE.write_text(written(Path(folder)))
