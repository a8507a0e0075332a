"""A network divided over processes trains as the whole network on one process, in float64."""

import pytest

from tests.launching import launch

pytestmark = pytest.mark.slow
CASES = [
    *(
        (name, split, shards, 10)
        for name in ("alexnet_like", "nin_like", "mixed", "narrow_resnet")
        for split in ("all", "fully_connected", "auto")
        for shards in (4, 2)
        if shards == 4 or name != "narrow_resnet" or split == "auto"
    ),
    ("resnet18", "auto", 4, 2),
]
LENGTH = 2**18
NAMES = [" ".join(map(str, case[:3])) for case in CASES]
every_case = pytest.mark.parametrize("case", NAMES)


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What each of four processes has seen; in cases of two shards the others wait."""
    folder = tmp_path_factory.mktemp("divided")
    target = "tests.clock.split.dividing:laws"
    return launch(target, (CASES, LENGTH), workers=4, servers=0, log_folder=folder)


@pytest.fixture(scope="module")
def seen(processes):
    """What the processes have seen of each case, in order of shards."""
    return {
        name: [process[name] for process in processes[:shards]]
        for name, (_, _, shards, _) in zip(NAMES, CASES, strict=True)
    }


@every_case
def test_a_divided_network_trains_as_one_process_does(case, seen):
    first = seen[case][0]
    assert first["moved"] > 1e-6  # each of the weights
    assert first["logits"] < 1e-12
    assert first["weights"] < 1e-12


@every_case
def test_all_processes_have_the_same_logits(case, seen):
    assert [shard["digest"] for shard in seen[case]] == [seen[case][0]["digest"]] * len(seen[case])


@every_case
def test_the_bytes_are_those_of_the_plan(case, seen):
    for shard in seen[case]:
        assert shard["bytes"] == shard["planned"]


@every_case
def test_whole_weights_go_back_into_slices(case, seen):
    assert all(shard["loaded"] for shard in seen[case])


@pytest.mark.parametrize("kind", ["gather", "swap", "sum"])
def test_the_kernel_counts_the_bytes_that_the_group_counts(kind, processes):
    for process in processes:
        counted, sent, received = process["wire"][kind]
        assert (sent, received) == pytest.approx((counted, counted), rel=0.01)


def test_the_first_process_exchanges_with_each_other_and_these_with_no_other(processes):
    """As SplitWorker counts gradients that are gathered, and weights that are handed out."""
    num_bytes = 8 * LENGTH
    for shard, process in enumerate(processes):
        gathered, handed_out = process["with_first"]
        more, less = (3 * num_bytes, 0) if shard == 0 else (0, num_bytes)
        close = {"rel": 0.01, "abs": 0.01 * num_bytes}
        assert gathered == pytest.approx((less, more), **close)
        assert handed_out == pytest.approx((more, less), **close)
