"""Data that change under a study: a sweep says so at its end, and runs again when asked."""

import shutil

import numpy as np
import pytest
from PIL import Image

from paceline.record.data_digest import data_digest, look_again
from paceline.record.provenance import source_digest
from paceline.study.collect import collect
from paceline.study.sweep import checked_study
from tests.command_line import results, run
from tests.made_records import make_record
from tests.small_study import write_small_study

DATA = {"root": "photos", "num_classes": 2, "image_shape": [3, 8, 8], "num_validation": 20}


def write_photos(root, signal):
    """Noise, to which the images of each class add `signal` in a colour of their own."""
    shutil.rmtree(root / "photos", ignore_errors=True)
    draw = np.random.default_rng(0)
    for part, number in (("train", 60), ("test", 20)):
        for label, name in enumerate(("cat", "dog")):
            folder = root / "photos" / part / name
            folder.mkdir(parents=True)
            for n in range(number):
                image = draw.integers(0, 120, (8, 8, 3))
                image[:, :, label] += signal
                Image.fromarray(image.astype(np.uint8)).save(folder / f"{n:03}.png")


@pytest.mark.slow
def test_a_study_of_changed_images_says_so_and_runs_again_when_asked(tmp_path):
    shutil.copytree("conf", tmp_path / "conf")
    (tmp_path / "experiments").mkdir()
    write_small_study(tmp_path, "photos", {"workers": "1,2"}, "virtual", data=DATA)
    study = tmp_path / "experiments/photos.yaml"
    study.write_text(study.read_text().replace("synthetic", "image_folder"))
    write_photos(tmp_path, 0)
    code, _, errors = run(tmp_path, "sweep", "photos")
    assert code == 0, errors
    old = [each["data_digest"] for each in results(tmp_path, "photos")]
    write_photos(tmp_path, 130)
    _, out, _ = run(tmp_path, "sweep", "photos")
    assert "2 of data that have changed since (sweep.rerun=stale runs them again)" in out[0]
    _, out, _ = run(tmp_path, "sweep", "photos", "sweep.rerun=stale")
    new = results(tmp_path, "photos")
    assert {each["data_digest"] for each in new}.isdisjoint(old)
    assert [each["top1"] for each in new] == [1, 1]
    assert not [line for line in out if "have changed" in line]


def test_data_that_change_during_a_sweep_are_found_at_its_end(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    photo = root / "data/photo"
    photo.parent.mkdir()
    photo.write_text("a cat")
    look_again()
    study = checked_study("made", root)
    for point in study.points:
        digest = data_digest(point.config.target("data"))
        made = {"source_digest": source_digest(), "data_digest": digest}
        make_record(point.folder, point.config, **made)
    study.refresh()
    collect(study)
    assert "changed" not in capsys.readouterr().out
    photo.write_text("a dog")
    collect(study)
    assert "4 records are of data that have changed since" in capsys.readouterr().out
