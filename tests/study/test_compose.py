"""Configurations that are made of one another are those that Hydra composes."""

import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from paceline.errors import SettingError
from paceline.study.compose import composed, composer, searching_in
from paceline.study.study_points import Study, study_points

REPOSITORY = Path(__file__).parent.parent.parent
SHAPED = ["cluster=shaped_nodes", "cluster.link={bandwidth: 1e6, latency: 0.0}"]
JOBS = [
    ["experiments=schemes", "scheme=gossip", "workers=2", "seed=0"],
    ["experiments=schemes", "scheme=gossip", "workers=4", "seed=1"],
    ["experiments=schemes", "scheme=diloco", "workers=4", "seed=1"],
    ["experiments=schemes", "scheme=gossip", "workers=4", "seed=1", "scheme.graph=ring"],
    ["experiments=schemes", "scheme=gossip", "workers=2", "seed=1", "scheme.graph=complete"],
    [*SHAPED, "cluster.link.bandwidth=2e6"],
    [*SHAPED, "cluster.link.bandwidth=3e6"],
    ["cluster.link.bandwidth=3e6", *SHAPED],
    ["tuning=null", "training.rate=by_rule"],
    ["tuning={values: {training.lr: [1]}, seed: 1}", "training.rate=tuned"],
    ["+model.more=1", "training.lr=0.1"],
    ["+model.more=2", "training.lr=${training.momentum}"],
    ["+model.more=2", "training.lr=0.2"],
    ["+model.more=2", "training.lr=null"],
]


def settings(compose, job):
    return OmegaConf.to_container(compose(job).cfg, resolve=True)


def test_one_after_the_other_they_are_as_each_alone():
    alone = []
    for job in JOBS:
        with composer(REPOSITORY) as compose:
            alone.append(settings(compose, job))
    for order in (1, -1):  # forwards and backwards
        with composer(REPOSITORY) as compose:
            assert [settings(compose, job) for job in JOBS[::order]] == alone[::order]


def test_a_project_may_lie_anywhere_and_a_file_that_is_no_yaml_is_one_line(tmp_path):
    for name in ("it's here", "with spaces", "back\\slash", 'a "quote"', "ここ"):
        (root := tmp_path / name).mkdir()
        (root / "conf").symlink_to(REPOSITORY / "conf")
        shutil.copytree(REPOSITORY / "experiments", root / "experiments")
        assert composed(["experiments=quick"], root).study == "quick"
    (root / "experiments" / "odd.yaml").write_text("study: odd\ngrids: [a, {b: c\n")
    with pytest.raises(SettingError, match=r'", line 2, column 12 expected') as error:
        composed(["experiments=odd"], root)
    assert "\n" not in str(error.value)


def test_a_further_folder_is_read_before_pacelines_own(tmp_path):
    folder = tmp_path / "it's here, [too]"
    (folder / "model").mkdir(parents=True)
    text = (REPOSITORY / "conf/model/small_cnn.yaml").read_text().replace("width: 16", "width: 8")
    (folder / "model/resnet34.yaml").write_text(text)
    searched = searching_in(folder, REPOSITORY)
    config = composed([searched, "model=resnet34", "scheme=gossip"], REPOSITORY)
    assert (config.names["model"], config.names["scheme"]) == ("resnet34", "gossip")
    other = composed(["model=resnet34"], REPOSITORY)  # of torchvision
    assert (other.names["model"], other.values["model"]["network"]["name"]) == (
        *("torchvision", "resnet34"),
    )
    points = Study(None, REPOSITORY, [searched, "model=small_cnn,resnet34"]).points
    assert [point.axes for point in points] == [{"model": "small_cnn"}, {"model": "resnet34"}]
    with pytest.raises(SettingError, match=r"^--config-dir: there is no folder "):
        searching_in(tmp_path / "none", REPOSITORY)


@pytest.mark.parametrize(
    ("setting", "place"), [("data.shape", "conf/data/cifar10.yaml"), ("other", "a file of conf/")]
)
def test_a_setting_that_refers_to_none_is_refused_with_the_file_that_lacks_it(setting, place):
    with pytest.raises(SettingError) as refused:
        composed(["data=cifar10", f"training.lr=${{{setting}}}"], REPOSITORY)
    assert refused.value.setting.endswith(".lr")
    assert f"refers to {setting}, which" in refused.value.message
    assert refused.value.message.endswith(f"VALUE into {place}")


RATES = "${per:${names.scheme},${workers},{gossip:{1:0.5,4:0.25},local_sgd:{2:0.125}}}"


def test_a_setting_may_follow_from_a_table_of_others():
    def rate(scheme, workers):
        job = [f"scheme={scheme}", f"workers={workers}", f"training.lr='{RATES}'"]
        return composed(job, REPOSITORY).lr

    assert [rate("gossip", workers) for workers in (2, 4, 64)] == [0.5, 0.25, 0.25]
    assert rate("local_sgd", 2) == 0.125
    for scheme in ("local_sgd", "independent"):
        with pytest.raises(SettingError, match=r"no value for (1|independent)") as error:
            rate(scheme, 1)
        assert error.value.setting.endswith(".lr")


@pytest.mark.parametrize(("cores", "workers"), [(1, [1, 2]), (2, [1, 2]), (7, [1, 2, 4])])
def test_a_study_may_use_as_many_workers_as_there_are_cores(monkeypatch, cores, workers):
    monkeypatch.setattr("paceline.study.compose.num_cores", lambda: cores)
    monkeypatch.setattr("paceline.cluster.cluster.num_gpus", lambda: 0)
    points = study_points("quick", REPOSITORY)
    measured = [point for point in points if point.config.names["cluster"] == "local"]
    assert sorted({point.config.values["workers"] for point in measured}) == workers
