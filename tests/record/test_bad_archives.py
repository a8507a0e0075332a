"""Whatever is wrong with an archive is said in one line that names it, and nothing is written."""

import functools
import gzip
import io
import json
import lzma
import os
import re
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import pytest
import yaml

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, missing_records, write_records
from paceline.record.rows import POINT_TABLES
from tests.made_records import made_config, make_record

CONFIG = made_config()
KEY = CONFIG.key
NAMES = ("config.yaml", "result.json", *(f"{table.name}.csv" for table in POINT_TABLES))
MOST_MEMORY = 2**26  # bytes of Python's objects, whatever an archive says of itself


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


def changed(**fields):
    result = json.loads(whole()["result.json"]) | fields
    return xz(tar(*record(result_json=json.dumps(result).encode())))


def settings(**changes):
    return xz(tar(*record(config_yaml=yaml.safe_dump({**CONFIG.values, **changes}).encode())))


def greedy():
    """An xz file that asks its reader for 1.5 GiB."""
    packed = bytearray(xz(tar(*record()), preset=1))
    size = (packed[12] + 1) * 4
    at = packed.index(b"\x21\x01", 12) + 2
    packed[at] = 37  # the code of 1.5 GiB
    packed[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(packed[12 : 8 + size]))
    return bytes(packed)


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{KEY}/config.yaml", whole()["config.yaml"])
    return file.getvalue()


def damaged_in_the_middle():
    first, *others = record()
    return xz(tar(first, b"\xff" * 512, *others))


def with_holes():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(f"{KEY}/config.yaml")
        info.pax_headers = {"GNU.sparse.size": str(2**40), "GNU.sparse.map": "0,0"}
        archive.addfile(info, io.BytesIO())
    return xz(file.getvalue())


BOMB = bytes(2**23)

CONTENTS = {  # what is wrong inside a record is in test_bad_records.py and test_reading.py
    "empty": lambda: b"",
    "text": lambda: b"no archive",
    "a zip file": zipped,
    "gzip": lambda: gzip.compress(tar(*record())),
    "not packed": lambda: tar(*record()),
    "no tar inside": lambda: xz(b"no archive" * 100),
    "cut in half": lambda: xz(tar(*record()))[:300],
    "one bit": lambda: b"".join((p := xz(tar(*record())), p[:99], bytes([p[99] ^ 1]), p[100:])[1:]),
    "cut between entries": lambda: xz(b"".join(record())),
    "cut in an entry": lambda: xz(b"".join(record())[:700]),
    "nothing inside": lambda: xz(b""),
    "another stream behind": lambda: xz(tar(*record())) + xz(tar(*record("f" * 12))),
    "data behind": lambda: xz(tar(*record())) + b"hidden",
    "entries behind the end": lambda: xz(tar(*record()) + tar(*record("f" * 12))),
    "a damaged header": damaged_in_the_middle,
    "asks for memory": greedy,
    "a bomb": lambda: xz(tar(member(f"{KEY}/timeline.csv", BOMB * 4))),
    "a bomb of entries": lambda: xz(
        b"".join(member(f"{n:012x}/curve.csv", BOMB[: 2**20]) for n in range(64)) + bytes(1024)
    ),
    "an upper folder": lambda: odd(f"../{KEY}/curve.csv"),
    "an absolute path": lambda: odd(f"/{KEY}/curve.csv"),
    "a backslash": lambda: odd(f"..\\{KEY}\\curve.csv"),
    "a folder in between": lambda: odd(f"{KEY}/../curve.csv"),
    "a deep path": lambda: odd(f"{KEY}/a/curve.csv"),
    "no folder": lambda: odd("curve.csv"),
    "an unknown name": lambda: odd(f"{KEY}/weights.pt"),
    "a hidden folder": lambda: odd(f".{KEY}/curve.csv"),
    "a name with an end of line": lambda: odd(f"{KEY}\n/curve.csv"),
    "a symbolic link": lambda: odd(f"{KEY}/test.csv", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": lambda: odd(f"{KEY}/test.csv", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "a fifo": lambda: odd(f"{KEY}/test.csv", type=tarfile.FIFOTYPE),
    "a device": lambda: odd(f"{KEY}/test.csv", type=tarfile.CHRTYPE),
    "a disk": lambda: odd(f"{KEY}/test.csv", type=tarfile.BLKTYPE),
    "a folder": lambda: odd(f"{KEY}/test.csv", type=tarfile.DIRTYPE),
    "a contiguous file": lambda: odd(f"{KEY}/test.csv", type=tarfile.CONTTYPE),
    "holes": with_holes,
    "a long name": lambda: odd("a" * 300 + "/curve.csv", format=tarfile.GNU_FORMAT),
    "an unknown type": lambda: odd(f"{KEY}/test.csv", type=b"Z"),
    "a huge size": lambda: odd(f"{KEY}/test.csv", size=2**32),
    "a size below 0": lambda: odd(f"{KEY}/test.csv", size=-1, format=tarfile.GNU_FORMAT),
    "an entry twice": lambda: xz(tar(*record(), member(f"{KEY}/curve.csv", whole()["curve.csv"]))),
    "no result": lambda: xz(tar(*record(result_json=None))),
    "no settings": lambda: xz(tar(*record(config_yaml=None))),
    "no curve": lambda: xz(tar(*record(curve_csv=None))),
    "a large result": lambda: xz(tar(*record(result_json=b" " * (2**20 + 1)))),
    "another place": lambda: xz(tar(*record("f" * 12))),
    "another study": lambda: settings(study="other"),
    "another accuracy": lambda: changed(top1=0.99),
    "a gadget": lambda: settings(scheme={"_target_": "paceline.cluster.child.call_here"}),
}
SPECIAL = {
    "is a fifo": os.mkfifo,
    "is a folder": os.mkdir,
    "is endless": lambda path: path.symlink_to("/dev/zero"),
}


def refused(path, runs):
    """In bounded memory."""
    tracemalloc.start()
    try:
        with pytest.raises(SettingError) as caught:
            missing_records(path, runs)
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    assert re.fullmatch(
        f"study: .*{ARCHIVE} cannot be read: .*; an intact copy is needed, or none", message
    )
    assert len(message) < 800
    assert not runs.parent.exists()


def test_a_whole_archive_is_unpacked_if_it_is_not_much_larger_then(tmp_path, monkeypatch):
    monkeypatch.setattr("paceline.record.archive._MOST_BESIDE", 0)  # so that its size decides
    (tmp_path / ARCHIVE).write_bytes(xz(tar(*record())))
    assert len(missing_records(tmp_path / ARCHIVE, tmp_path / "runs/made")) == 1


@pytest.mark.parametrize("kind", CONTENTS)
def test_a_bad_archive_is_refused_in_one_line(kind, tmp_path):
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
