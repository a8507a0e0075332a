from paceline.report.caution_sentences import cautions
from tests.made_reports import make_run

STARTED = "2026-01-02T03:04:05+00:00"


def test_when_and_where_images_per_second_were_measured(findings):
    runs = [make_run(seed=s, started=STARTED, wall_seconds=60 * (s + 1)) for s in (0, 1)]
    (text,) = cautions(findings(runs))
    assert text.startswith(
        "Measured images/s are those of one hour of one machine (A Made-up Processor, 4 cores): "
        "2 points within 2 minutes from 2026-01-02 03:04 UTC."
    )


def test_a_block_that_drifted_is_named(findings):
    runs = [make_run(seed=s, repeat=0, images_per_second=1000) for s in (0, 1)]
    runs += [
        make_run(seed=s, repeat=1, key=f"again{s}", images_per_second=speed)
        for s, speed in ((0, 1000), (1, 800))
    ]
    (text,) = cautions(findings(runs))
    assert text.startswith("1 of 2 blocks left out of all images/s")
    assert text.endswith("block 1: drift, -20.0 %.")


def test_a_super_linear_speed_up_comes_with_a_warning(findings):
    runs = [
        make_run(workers=workers, seed=s, images_per_second=1000 * speed)
        for workers, speed in ((1, 1), (2, 2.5))
        for s in (0, 1)
    ]
    (text,) = cautions(findings(runs))
    assert text.startswith("Of 1 of 1 configuration with several workers the speed-up is super")
    assert text.endswith("efficiency sync_allreduce, 2 workers, batch_size 32: 125 %.")
