"""Jobs run code from the files in their folder, so it is their user's alone."""

import os

import pytest

from paceline.errors import SettingError
from paceline.study.slurm_jobs import log_folder, private_folder


def test_nobody_else_can_write_where_jobs_read_code(tmp_path, monkeypatch):
    log_folder(tmp_path).mkdir(mode=0o777)
    log_folder(tmp_path).chmod(0o777)
    (log_folder(tmp_path) / "7_0_log.out").touch()
    assert private_folder(tmp_path).stat().st_mode & 0o777 == 0o700
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(SettingError, match=r"^cluster: .*belongs to another user"):
        private_folder(tmp_path)


def test_a_link_to_another_folder_is_refused(tmp_path):
    (tmp_path / "theirs").mkdir()
    log_folder(tmp_path).symlink_to("theirs")
    with pytest.raises(SettingError, match=r"^cluster: "):
        private_folder(tmp_path)
