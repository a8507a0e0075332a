"""The data of a study are found or downloaded before it runs."""

from unittest.mock import Mock

from paceline.command.sweep_command import prepare
from paceline.record.target import Target


def test_data_of_many_points_are_prepared_once(root, monkeypatch, capsys):
    data = Mock()
    monkeypatch.setattr(Target, "build", lambda _: data)
    prepare("made", root, ["data._target_=paceline.made.Data"])
    data.prepare.assert_called_once_with()
    assert capsys.readouterr().out == "made is there\n"


def test_anybodys_data_prepare_themselves(root, capsys):
    prepare("made", root)
    assert capsys.readouterr().out == ""
