"""One process of a run is the launcher itself, where a debugger sees it."""

import os

import pytest
import torch.distributed as dist

from paceline.cluster.in_process import InProcessCluster
from paceline.cluster.processes import KEEP_MEMORY
from paceline.cluster.supervisor import ProcessFailure, Task
from paceline.errors import SettingError
from tests.launching import launch
from tests.tiny import point_of, tiny_point

PLACE = "tests.cluster.counting:place"


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_one_process_is_this_one_and_the_others_are_not(rank, tmp_path, capfd):
    environment = dict(os.environ)
    places = launch(PLACE, ("x",), workers=2, servers=1, log_folder=tmp_path, own_rank=rank)
    assert [each == os.getpid() for each in places] == [other == rank for other in range(3)]
    assert len(set(places)) == 3
    assert capfd.readouterr().out == "x\n"  # the others write to their logs
    assert len(list(tmp_path.iterdir())) == 2
    assert dict(os.environ) == {**environment, "OMP_NUM_THREADS": "1", **KEEP_MEMORY}
    assert not dist.is_initialized()


@pytest.mark.parametrize("failing", ["0", "1"])
def test_a_failure_here_or_there_is_named(failing, tmp_path):
    with pytest.raises(ProcessFailure, match=f"^worker {failing}: ValueError: {failing}$"):
        launch(PLACE, (failing,), workers=2, servers=0, log_folder=tmp_path, own_rank=0)
    assert not dist.is_initialized()


def test_the_file_of_conf_is_a_cluster_of_this_kind(tmp_path):
    point = point_of(tiny_point("async_parameter_server", 2, 4, cluster="in_process"))
    assert isinstance(point.cluster, InProcessCluster)
    assert point.kind == "measured"
    places = point.cluster.run(Task(PLACE, ("x",), 2, 1, tmp_path))
    assert [each == os.getpid() for each in places] == [True, False, False]


def test_a_rank_that_no_process_has_is_named_before_anything_starts():
    with pytest.raises(SettingError, match=r"^cluster\.rank: there are 3 processes, .* not 3$"):
        point_of(tiny_point("async_parameter_server", 2, 4, cluster="in_process", cluster__rank=3))
