"""Tables of a report that were changed by hand: one line names the file, and no number is used."""

import json
import os
import shutil

import pytest

from paceline.analysis.analyse import analyse, read_conclusion
from paceline.analysis.tables import read_tables
from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, read_archive, write_files
from paceline.report.findings import read_findings
from tests.made_decisions import made_tuning
from tests.made_reports import made_two_schemes, tie, write_reports, write_rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An analysed report with a search and predictions."""
    folder = tmp_path_factory.mktemp("whole") / "made"
    runs = made_two_schemes(spread=30)
    write_reports(folder, runs)
    names = ["key", "kind", "half", "cluster", "images_per_second"]
    predicted = [
        dict(zip(names, (run["key"], "predicted", "", "x", 1.0), strict=True)) for run in runs
    ]
    write_rows(folder / "predictions.csv", names, predicted)
    tuning = made_tuning(runs, {})
    write_rows(folder / "tuning.csv", list(tuning[0]), tuning)
    results = {run["key"]: json.dumps(run).encode() for run in runs}
    files = dict(read_archive(folder / ARCHIVE))
    write_files(folder / ARCHIVE, files | {"result.json": results})
    analyse(tie(folder))
    return folder


def cell(column, value, row=1):
    """Put `value` into a cell of a table."""

    def change(text):
        lines = [line.split(",") for line in text.splitlines()]
        lines[row][lines[0].index(column)] = value
        return "".join(",".join(line) + "\n" for line in lines)

    return change


def column(name, new=None):
    """Remove a column, or name it anew."""

    def change(text):
        lines = [line.split(",") for line in text.splitlines()]
        place = lines[0].index(name)
        lines[0][place] = new
        rows = [line if new else line[:place] + line[place + 1 :] for line in lines]
        return "".join(",".join(line) + "\n" for line in rows)

    return change


def lines(edit):
    return lambda text: "".join(edit(text.splitlines(keepends=True)))


def entry(name, value):
    return lambda text: json.dumps(json.loads(text) | {name: value})


def without(name):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != name})


RUNS = {  # what the message names, and the change of the text
    "a share above 1": ("top1", cell("top1", "2.0")),
    "a share below 0": ("test_top1", cell("test_top1", "-0.1")),
    "a share as a text": ("top1", cell("top1", "good")),
    "a share that is infinite": ("top1", cell("top1", "inf")),
    "a share that is not a number": ("row 1, top1", cell("top1", "nan")),
    "a share with an underscore": ("top1", cell("top1", "0_9")),
    "a share that is a little better": ("row 1, top1 is 0.99", cell("top1", "0.99")),
    "negative workers": ("workers", cell("workers", "-1")),
    "no workers": ("workers", cell("workers", "0")),
    "half a worker": ("workers", cell("workers", "1.5")),
    "workers as a text": ("workers", cell("workers", "two")),
    "workers without a value": ("workers", cell("workers", "")),
    "more workers": ("row 1, workers is 2", cell("workers", "2")),
    "a negative batch": ("batch_size", cell("batch_size", "-32")),
    "a negative seed": ("seed", cell("seed", "-1")),
    "a huge seed": ("seed", cell("seed", "1e400")),
    "negative seconds": ("seconds", cell("seconds", "-5")),
    "seconds as a date": ("seconds", cell("seconds", "2026-01-01")),
    "negative images per second": ("images_per_second", cell("images_per_second", "-1")),
    "faster images per second": ("images_per_second", cell("images_per_second", "1e6")),
    "negative samples": ("samples", cell("samples", "-1")),
    "negative updates": ("updates", cell("updates", "-1")),
    "negative staleness": ("staleness_mean", cell("staleness_mean", "-1")),
    "negative servers": ("servers", cell("servers", "-1")),
    "negative cores": ("hardware.cores", cell("hardware.cores", "-4")),
    "cores as a text": ("hardware.cores", cell("hardware.cores", "many")),
    "a loss as a text": ("validation_loss", cell("validation_loss", "low")),
    "an unknown status": ("status", cell("status", "hacked")),
    "no status": ("status", cell("status", "")),
    "a failed run": ("status is 'failed'", cell("status", "failed")),
    "an unknown kind": ("kind", cell("kind", "guessed")),
    "a script as kind": ("kind", cell("kind", "<script>alert(1)</script>")),
    "another kind": ("kind is 'virtual'", cell("kind", "virtual")),
    "another scheme": ("scheme is 'gossip'", cell("scheme", "gossip")),
    "a script as scheme": ("scheme", cell("scheme", "<script>alert(1)</script>")),
    "a script as reason": ("reason", cell("reason", "<script>alert(1)</script>")),
    "another data set": ("data", cell("data", "mnist")),
    "a key of no record": ("no record ffffffffffff", cell("key", "f" * 12)),
    "an empty key": ("key", cell("key", "")),
    "a key that climbs": ("key", cell("key", "../../x")),
    "an impossible date": ("started", cell("started", "2026-13-45")),
    "a column less": ("runs.csv", column("top1")),
    "a column renamed": ("runs.csv", column("top1", "top2")),
    "a column twice": ("column top1 twice", column("test_top1", "top1")),
    "a column more": ("runs.csv", lines(lambda t: [line[:-1] + ",1\n" for line in t])),
    "a cell more": ("row 1", lines(lambda t: [t[0], t[1][:-1] + ",1\n", *t[2:]])),
    "a cell more in all rows": (
        "row 1",
        lines(lambda t: [t[0], *(x[:-1] + ",1\n" for x in t[1:])]),
    ),
    "a cell less": ("row 2", lines(lambda t: [*t[:2], t[2].rpartition(",")[0] + "\n", *t[3:]])),
    "a row less": ("runs.csv", lines(lambda t: t[:-1])),
    "a row twice": ("runs.csv", lines(lambda t: [*t, t[-1]])),
    "rows in another order": ("runs.csv", lines(lambda t: [t[0], *t[:0:-1]])),
    "no row": ("runs.csv", lines(lambda t: t[:1])),
    "no header": ("runs.csv", lines(lambda t: t[1:])),
    "nothing": ("runs.csv", lambda text: ""),
    "an end in the middle": ("runs.csv", lambda text: text[: len(text) // 2]),
    "no last line feed": ("runs.csv", lambda text: text[:-1]),
    "an open quote": ("runs.csv", lambda text: text + '"'),
    "a NUL": ("runs.csv", lambda text: text.replace("finished", "fin\0ished", 1)),
    "a byte order mark": ("runs.csv", lambda text: "\ufeff" + text),
    "lines of Windows": ("runs.csv", lambda text: text.replace("\n", "\r\n")),
    "another encoding": ("runs.csv", lambda text: text.encode("utf-16")),
    "no UTF-8": ("runs.csv", lambda text: text.encode() + b"\xff\n"),
    "semicolons": ("no column key", lambda text: text.replace(",", ";")),
    "tabs": ("runs.csv", lambda text: text.replace(",", "\t")),
    "a picture": ("runs.csv", lambda text: b"\x89PNG\r\n\x1a\n" + os.urandom(64)),
    "another number of digits": ("runs.csv", lambda text: text.replace("0.05", "0.050")),
}
OTHERS = {
    "tuning.csv": {
        "a share above 1": ("top1", cell("top1", "2.0")),
        "chosen by nobody": ("chosen", cell("chosen", "perhaps")),
        "another choice": ("tuning.csv", lambda text: text.replace("true", "false")),
        "a row less": ("tuning.csv", lines(lambda t: t[:-1])),
    },
    "predictions.csv": {
        "a negative rate": ("images_per_second", cell("images_per_second", "-1")),
        "an unknown kind": ("kind", cell("kind", "guessed")),
        "another rate": ("predictions.csv", cell("images_per_second", "2.0")),
    },
    "study.json": {
        "no JSON": ("study.json", lambda text: text[:-9]),
        "a list": ("study.json", lambda text: "[]"),
        "no axes": ("axes", without("axes")),
        "axes as a text": ("axes", entry("axes", "scheme")),
        "a negative margin": ("margin", entry("margin", -1)),
        "an infinite margin": ("margin", entry("margin", float("inf"))),
        "an unknown target": ("target", entry("target", {"metric": "speed"})),
        "another margin": ("study.json", entry("margin", 5.0)),
        "points as a text": ("num_points", entry("num_points", "all")),
        "a script as name": ("study.json", entry("study", "<script>alert(1)</script>")),
    },
    "tables/decision.csv": {
        "another tier": ("decision.csv", lambda text: text.replace("best", "behind")),
        "a speed-up as a text": ("decision.csv", cell("speedup_mean", "great")),
        "a column less": ("decision.csv", column("tier")),
        "nothing": ("decision.csv", lambda text: ""),
        "another speed-up": ("decision.csv", cell("speedup_mean", "9")),
    },
    "tables/configurations.csv": {
        "another accuracy": ("configurations.csv", cell("test_top1_mean", "0.99")),
        "a row less": ("configurations.csv", lines(lambda t: t[:-1])),
    },
}
CHANGES = [("runs.csv", *each) for each in RUNS.items()]
CHANGES += [(file, *each) for file, changes in OTHERS.items() for each in changes.items()]


def refused(folder, by=read_findings):
    """The message with which the report of a folder is refused; any other error is raised."""
    with pytest.raises(SettingError) as error:
        by(folder)
    return str(error.value)


def test_each_change_by_hand_is_named_in_one_line(whole, tmp_path):
    wrong, folder = {}, shutil.copytree(whole, tmp_path / "made")
    for file, name, (named, change) in CHANGES:
        before = (whole / file).read_text()
        changed = change(before)
        assert changed != before, name
        (folder / file).write_bytes(changed if isinstance(changed, bytes) else changed.encode())
        try:
            text = refused(folder)
            if "\n" in text or file not in text or named not in text:
                wrong[file, name] = text
        except BaseException as error:  # pytest's Failed is one
            wrong[file, name] = f"{type(error).__name__}: {error}"[:80]
        (folder / file).write_text(before)
    shown = "\n".join(f"{file}, {name}: {text}" for (file, name), text in wrong.items())
    assert not wrong, f"{len(wrong)} of {len(CHANGES)} changes:\n{shown}"


def test_what_is_no_file_that_can_be_read_is_named(whole, tmp_path):
    def pipe(path):
        os.mkfifo(path)

    def huge(path):
        with path.open("wb") as file:
            file.truncate(2**40)

    kinds = [pipe, huge, lambda path: path.mkdir(), lambda path: path.symlink_to("/dev/zero")]
    kinds += [lambda path: path.symlink_to(path), lambda path: None]
    for file in ("runs.csv", "tuning.csv", "study.json", ARCHIVE, "tables/decision.csv"):
        for number, make in enumerate(kinds):
            folder = shutil.copytree(whole, tmp_path / f"{number}{file[:6]}" / "made")
            (folder / file).unlink()
            make(folder / file)
            text = refused(folder)
            assert "\n" not in text
            assert file in text


def test_a_table_that_does_not_follow_from_its_archive_is_used_nowhere(whole, tmp_path):
    """Of another archive, of another sweep, or without digests."""
    folder = shutil.copytree(whole, tmp_path / "made")
    files = read_archive(folder / ARCHIVE)
    write_files(folder / ARCHIVE, {**files, "timeline.csv": {}, "staleness.csv": {}})
    assert f"{ARCHIVE} is not the file of the digest in" in refused(folder)
    tie(folder)
    read_tables(folder)  # of a new sweep, and the report is of the one before
    with pytest.raises(SettingError, match=r"tables does not follow .*paceline report made"):
        read_conclusion(folder, "decision")
    analyse(folder)
    read_findings(folder)
    (folder / "SHA256SUMS").unlink()
    assert "there is no" in refused(folder)


def test_rows_of_an_archive_follow_the_schema_too(whole, tmp_path):
    """Whoever changes an archive and its digest still cannot put in what no run can have."""
    whole_curve = b"samples,updates,seconds,train_loss,validation_loss,top1,top5,real_seconds,"
    whole_curve += b"averaged_top1\n32,1,1.0,,,%s,0.9,1.0,\n"
    for curve in (whole_curve % b"2.0", whole_curve % b"x", b"samples,top1\n-1,0.5\n", b"a,b\n1\n"):
        folder = shutil.copytree(whole, tmp_path / "made", dirs_exist_ok=True)
        files = read_archive(folder / ARCHIVE)
        key = next(iter(files["curve.csv"]))
        write_files(folder / ARCHIVE, {**files, "curve.csv": {key: curve}})
        assert "curve.csv" in refused(tie(folder), analyse)
