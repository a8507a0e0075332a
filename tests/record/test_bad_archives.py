"""Whatever is wrong with an archive is said in one line that names it, and nothing is written."""

import functools
import gzip
import lzma
import os
import re
import tarfile

import pytest

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, missing_records, write_records
from paceline.record.rows import POINT_TABLES
from tests.made_records import made_config, make_record

CONFIG = made_config()
KEY = CONFIG.key
NAMES = ("config.yaml", "result.json", *(f"{table.name}.csv" for table in POINT_TABLES))


@functools.cache
def whole():
    """The files of a record by name; two of its tables are missing, as in an earlier record."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / CONFIG.folder
        make_record(folder, CONFIG)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def member(name, content=b"", format=tarfile.USTAR_FORMAT, **changes):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in changes.items():
        setattr(info, attribute, value)
    return info.tobuf(format) + padded(content)


def padded(content):
    return content + bytes(-len(content) % 512)


def tar(*members):
    return b"".join(members) + bytes(1024)


def record(key=KEY, **changes):
    """The members of a record, with the contents of `changes` for some of its files."""
    contents = {**whole(), **{name.replace("_", "."): each for name, each in changes.items()}}
    return [member(f"{key}/{name}", each) for name, each in contents.items() if each is not None]


def xz(content, **how):
    return lzma.compress(content, **{"preset": 0, **how})


def odd(name, **changes):
    return xz(tar(*record(), member(name, **changes)))


CONTENTS = {  # what is wrong inside a record is in test_damage.py
    "empty": lambda: b"",
    "text": lambda: b"no archive",
    "gzip": lambda: gzip.compress(tar(*record())),
    "no tar inside": lambda: xz(b"no archive" * 100),
    "cut in half": lambda: xz(tar(*record()))[:300],
    "one bit": lambda: b"".join((p := xz(tar(*record())), p[:99], bytes([p[99] ^ 1]), p[100:])[1:]),
    "cut in an entry": lambda: xz(b"".join(record())[:700]),
    "a bomb": lambda: xz(bytes(2**24)),
    "an upper folder": lambda: odd(f"../{KEY}/curve.csv"),
    "an absolute path": lambda: odd(f"/{KEY}/curve.csv"),
    "an unknown name": lambda: odd(f"{KEY}/weights.pt"),
    "a symbolic link": lambda: odd(f"{KEY}/test.csv", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": lambda: odd(f"{KEY}/test.csv", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a fifo": lambda: odd(f"{KEY}/test.csv", type=tarfile.FIFOTYPE),
    "a file with holes": lambda: odd(f"{KEY}/test.csv", type=tarfile.GNUTYPE_SPARSE),
    "a huge size": lambda: odd(f"{KEY}/test.csv", size=2**32),
    "no settings": lambda: xz(tar(*record(config_yaml=None))),
    "a large result": lambda: xz(tar(*record(result_json=b" " * (2**20 + 1)))),
    "another place": lambda: xz(tar(*record("f" * 12))),
}
SPECIAL = {
    "is a fifo": os.mkfifo,
    "is a folder": os.mkdir,
    "is endless": lambda path: path.symlink_to("/dev/zero"),
}


def refused(path, runs):
    with pytest.raises(SettingError) as caught:
        missing_records(path, runs)
    message = str(caught.value)
    assert re.fullmatch(
        f"study: .*{ARCHIVE} cannot be read: .*; an intact copy is needed, or none", message
    )
    assert len(message) < 800
    assert not runs.parent.exists()


def test_a_whole_archive_is_unpacked(tmp_path):
    (tmp_path / ARCHIVE).write_bytes(xz(tar(*record())))
    assert len(missing_records(tmp_path / ARCHIVE, tmp_path / "runs/made")) == 1


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_bad_archive_is_refused_in_one_line(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.record.archive._MOST_UNPACKED", 2**23)
    (tmp_path / ARCHIVE).write_bytes(CONTENTS[kind]())
    refused(tmp_path / ARCHIVE, tmp_path / "runs/made")


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_file_is_refused(kind, tmp_path):
    SPECIAL[kind](tmp_path / ARCHIVE)
    refused(tmp_path / ARCHIVE, tmp_path / "runs/made")


def test_nothing_stays_of_a_record_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / ARCHIVE).write_bytes(xz(tar(*record())))

    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("paceline.record.record.PartialRecord.complete", fails)
    runs = tmp_path / "runs/made"
    with pytest.raises(KeyboardInterrupt):
        write_records(missing_records(tmp_path / ARCHIVE, runs), runs)
    assert list((tmp_path / "runs/made").iterdir()) == []
