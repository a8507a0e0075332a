"""Records travel in an archive: equal ones in equal bytes, each whole or not at all."""

import io
import lzma
import os
import re
import shutil
import tarfile

import pytest

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, missing_records, write_archive, write_records
from paceline.record.reading import chosen_attempt, read_result
from paceline.record.record import PartialRecord, records_in
from tests.made_records import TABLES, made_config, make_record

CONFIGS = [made_config(seed=seed) for seed in (0, 1)]
KEY, OTHER = KEYS = [config.key for config in CONFIGS]


@pytest.fixture
def runs(tmp_path):
    """Two records of the study `made`, with files that do not belong into an archive."""
    for config in CONFIGS:
        folder = tmp_path / config.folder
        make_record(folder, config, top1=0.1 + 0.2)
        for name in ("timeline", "test"):
            (folder / f"{name}.csv").write_text(TABLES[name])
        for name in ("weights.pt", "progress.csv"):
            (folder / name).write_bytes(b"stays")
    (tmp_path / "runs/made" / OTHER / "timeline.csv").unlink()  # as of a point without one
    return tmp_path / "runs/made"


def archived(runs, path):
    write_archive(path, runs.iterdir())
    return path


def unpack_archive(path, runs):
    missing = missing_records(path, runs)
    write_records(missing, runs)
    return len(missing)


def content(runs):
    return {
        f"{record.name}/{path.name}": path.read_bytes()
        for record in records_in(runs)
        for path in chosen_attempt(record).iterdir()
        if path.name not in ("weights.pt", "progress.csv")
    }


def test_records_come_back_as_they_were_without_weights(runs, tmp_path):
    path = archived(runs, tmp_path / ARCHIVE)
    again = tmp_path / "again/made"
    assert unpack_archive(path, again) == 2
    names = {path.name for path in (again / KEY / "1").iterdir()}
    assert names == {"config.yaml", "result.json", *(f"{name}.csv" for name in TABLES)}
    assert content(again) == content(runs)
    assert {path.name for path in again.iterdir()} == set(KEYS)


def test_equal_records_give_equal_bytes(runs, tmp_path):
    """In any order, of any age, and unpacked."""
    first = archived(runs, tmp_path / "first.tar.xz").read_bytes()
    copied = tmp_path / "copied/made"
    shutil.copytree(runs, copied, copy_function=shutil.copyfile)
    write_archive(tmp_path / "second.tar.xz", [copied / key for key in reversed(KEYS)])
    assert (tmp_path / "second.tar.xz").read_bytes() == first
    unpack_archive(tmp_path / "first.tar.xz", tmp_path / "again/made")
    assert archived(tmp_path / "again/made", tmp_path / "third.tar.xz").read_bytes() == first
    (runs / KEY / "test.csv").unlink()
    assert archived(runs, tmp_path / "fourth.tar.xz").read_bytes() != first


def test_a_record_that_is_there_is_not_overwritten(runs, tmp_path):
    path = archived(runs, tmp_path / ARCHIVE)
    shutil.rmtree(runs / KEY)
    make_record(runs / KEY, CONFIGS[0], top1=0.5)
    (runs / OTHER / "curve.csv").write_text("")  # so it is no record
    assert unpack_archive(path, runs) == 1
    assert [read_result(runs / key)["top1"] for key in KEYS] == [0.5, 0.1 + 0.2]
    assert unpack_archive(path, runs) == 0


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_copy_that_is_cut_short_is_no_record(end, runs, tmp_path, monkeypatch):
    def ends(*_):
        raise end

    missing = missing_records(archived(runs, tmp_path / ARCHIVE), tmp_path / "again/made")
    copied = PartialRecord(tmp_path / "copied" / KEY)
    copied.copy_files(runs / KEY, [])
    monkeypatch.setattr(PartialRecord, "complete", ends)
    with pytest.raises(end):
        write_records(missing, tmp_path / "again/made")
    copied.discard()
    assert not [*(tmp_path / "copied").iterdir(), *(tmp_path / "again/made").iterdir()]


def packed(files, *odd, preset=0):
    """The bytes of an archive of a record with these files, and with odd members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, each in files.items():
            member = tarfile.TarInfo(f"{KEY}/{name}")
            member.size = len(each)
            archive.addfile(member, io.BytesIO(each))
        for member in odd:
            made.write(member.tobuf(tarfile.USTAR_FORMAT))
            archive.offset += 512
    return lzma.compress(made.getvalue(), preset=preset)


def odd(name, **changes):
    """A function that adds a member to the archive of a whole record."""
    member = tarfile.TarInfo(name)
    for attribute, value in changes.items():
        setattr(member, attribute, value)
    return lambda files: packed(files, member)


def flipped(content):
    return content[:99] + bytes([content[99] ^ 1]) + content[100:]


def moved(files):
    return {name: each.replace(KEY.encode(), b"f" * 12) for name, each in files.items()}


BAD = {  # what is wrong inside a record is in test_reading.py
    "text": lambda files: b"no archive",
    "no tar inside": lambda files: lzma.compress(b"no archive" * 100),
    "cut in half": lambda files: packed(files)[:300],
    "one bit": lambda files: flipped(packed(files)),
    "cut in an entry": lambda files: lzma.compress(lzma.decompress(packed(files))[:700]),
    "a bomb": lambda files: lzma.compress(bytes(2**24), preset=0),
    "an upper folder": odd(f"../{KEY}/curve.csv"),
    "an unknown name": odd(f"{KEY}/weights.pt"),
    "a link": odd(f"{KEY}/test.csv", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a file with holes": odd(f"{KEY}/test.csv", type=tarfile.GNUTYPE_SPARSE),
    "a huge size": odd(f"{KEY}/test.csv", size=2**32),
    "no settings": lambda files: packed({"result.json": files["result.json"]}),
    "a large result": lambda files: packed(
        files | {"result.json": files["result.json"] + b" " * 2**20}
    ),
    "another place": lambda files: packed(moved(files)),
}
SPECIAL = {
    "a folder in its place": os.mkdir,
    "an endless file": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", [*BAD, *SPECIAL])
def test_a_bad_archive_is_refused_in_one_line_and_nothing_is_written(
    kind, runs, tmp_path, monkeypatch
):
    monkeypatch.setattr("paceline.record.archive._MOST_UNPACKED", 2**23)
    names = ("config.yaml", "result.json", *(f"{name}.csv" for name in TABLES))
    files = {name: (runs / KEY / name).read_bytes() for name in names}
    path, again = tmp_path / ARCHIVE, tmp_path / "again/made"
    path.write_bytes(packed(files))
    assert len(missing_records(path, again)) == 1
    path.unlink()
    path.write_bytes(BAD[kind](files)) if kind in BAD else SPECIAL[kind](path)
    with pytest.raises(SettingError) as caught:
        missing_records(path, again)
    message = str(caught.value)
    assert re.fullmatch(
        f"study: .*{ARCHIVE} cannot be read: .*; an intact copy is needed, or none", message
    )
    assert len(message) < 800
    assert not again.parent.exists()
