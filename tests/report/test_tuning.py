"""What is said of the trials from which rates were chosen."""

from paceline.report.checks import checks
from paceline.report.findings import read_findings
from paceline.report.how_it_was_run import how_it_was_run
from tests.made_decisions import made_tuning
from tests.made_reports import make_run, write_reports, write_rows


def tuned(folder, edge="", **about):
    """Findings of one scheme and its search, of a chosen trial and one that failed."""
    runs = [make_run(seed=seed) for seed in (0, 1)]
    write_reports(folder, runs, **about)
    (best,) = made_tuning(runs, {"sync_allreduce": edge}, workers=1)
    failed = best | {"key": "f", "lr": 3, "top1": "", "status": "failed", "chosen": "false"}
    rows = [best, failed | {"at_edge": ""}]
    write_rows(folder / "tuning.csv", list(best), rows)
    return read_findings(folder)


def test_the_search_says_its_trials_its_range_and_what_it_was_done_with(tmp_path):
    search = dict(how_it_was_run(tuned(tmp_path / "made")))["Search"]
    assert search.startswith("2 trials for 1 configuration, rates 1 to 3, momentum 0 to 0")
    assert "32 images" not in search
    other = tuned(tmp_path / "other", tuning=[{"at": {"batch_size": 32}}])
    assert "with 32 images per worker and step for all" in dict(how_it_was_run(other))["Search"]


def test_a_search_of_which_most_trials_did_not_train_is_unreliable(tmp_path):
    runs = [make_run(seed=seed) for seed in (0, 1)]
    folder = write_reports(tmp_path / "made", runs)
    (best,) = made_tuning(runs, {}, workers=1)
    lost = [best | {"key": f"d{n}", "status": "diverged", "chosen": "false"} for n in range(2)]
    for trials, said in (([best, lost[0]], []), ([best, *lost], ["1 of 3 trials trained"])):
        write_rows(folder / "tuning.csv", list(best), trials)
        texts = [line.text for line in checks(read_findings(folder))]
        found = [text for text in texts if text.startswith("Search unreliable")]
        assert [text.partition(": ")[2].removesuffix(".") for text in found] == said


def test_an_edge_is_cautioned_of(tmp_path):
    found = tuned(tmp_path / "made", edge="lowest learning rate")
    assert any("lowest learning rate" in line.text for line in checks(found))
