from paceline.report.page_tables import page_tables
from tests.made_decisions import arm, write_decided
from tests.made_findings import as_needed


def test_crossovers_are_told_between_and_beyond_the_numbers_of_workers(tmp_path):
    times = {"sync_allreduce": (301, 201), "gossip": (401, 101), "mixed": (501, 401)}
    times |= {"local_sgd": (201, 101)}
    runs = [
        run
        for scheme, own in times.items()
        for workers, time in zip((4, 16), own, strict=True)
        for run in arm(scheme, time, 0.9, workers=workers)
    ]
    folder = write_decided(tmp_path / "made", runs)
    tables = page_tables(as_needed(folder))
    (table,) = (each for each in tables if each.name == "Crossovers in scale")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["gossip"][1].startswith("6.")
    assert rows["mixed"][1] == "more than 16"
    assert rows["mixed"][2] == "more than 16 to more than 16"
    assert rows["local_sgd"][1] == "4 or fewer"
    assert {row[3] for row in rows.values()} == {"4 to 16 workers"}
