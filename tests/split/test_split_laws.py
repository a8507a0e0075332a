"""A network divided over processes trains as the whole network on one process, in float64."""

import pytest

from paceline.cluster.launcher import launch

CASES = [
    (name, split, shards)
    for name in ("alexnet_like", "nin_like", "mixed", "resnet18")
    for split in ("all", "fully_connected", "auto")
    for shards in (4, 2)
]
every_case = pytest.mark.parametrize("case", [" ".join(map(str, case)) for case in CASES])


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the processes have seen of each case, in order of shards."""
    target = "tests.split.dividing:laws"
    folder = tmp_path_factory.mktemp("divided")
    processes = launch(target, (CASES,), workers=4, servers=0, log_folder=folder)
    return {
        " ".join(map(str, case)): [process[" ".join(map(str, case))] for process in processes[: case[2]]]
        for case in CASES
    }


@every_case
def test_a_divided_network_trains_as_one_process_does(case, seen):
    first = seen[case][0]
    assert first["moved"] > 0.01
    assert first["logits"] < 1e-12
    assert first["weights"] < 1e-12


@every_case
def test_all_processes_have_the_same_logits(case, seen):
    assert [shard["digest"] for shard in seen[case]] == [seen[case][0]["digest"]] * len(seen[case])


@every_case
def test_the_bytes_are_those_of_the_plan(case, seen):
    for shard in seen[case]:
        activations, gradients = shard["planned"]
        assert tuple(shard["activations"]) == (activations, activations)
        assert tuple(shard["gradients"]) == (gradients, gradients)


@every_case
def test_whole_weights_go_back_into_slices(case, seen):
    assert all(shard["loaded"] for shard in seen[case])
