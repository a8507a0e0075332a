"""Whole tensors in turn or equal parts: servers hold the same weights, with other shares."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.flat_weights import held_weights
from paceline.clock.schedules import LiveOptions
from paceline.errors import SettingError
from paceline.prediction.predict import simulate_point
from paceline.record.point import Point
from paceline.scheme.sync_parameter_server import SyncParameterServer
from paceline.study.compose import composed
from tests.clock.references import plain
from tests.tiny import CLOCKS, REPOSITORY, run_tiny, tiny_point

SHARES = [80 + 3, 5, 15]  # of the tiny network's tensors: 80, 5, 15, 3 weights


def in_turn(scheme, workers, clock, **settings):
    config = tiny_point(scheme, workers, 8, **CLOCKS[clock])
    config["scheme"] |= {"servers": 3, "sharding": "round_robin", **settings}
    return config


@pytest.mark.parametrize(
    ("scheme", "workers", "clock", "settings"),
    [
        *(("sync_parameter_server", 2, clock, {}) for clock in CLOCKS),
        *(("mixed", 2, clock, {"group_size": 2}) for clock in CLOCKS),
        ("async_parameter_server", 1, "virtual", {}),
    ],
)
def test_servers_with_unequal_shares_make_the_updates_of_plain_sgd(
    scheme, workers, clock, settings, tmp_path
):
    config = in_turn(scheme, workers, clock, **settings)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, plain(config), rtol=1e-12, atol=1e-14)
    received = [server.bytes_received for server in seen.servers]
    assert received == [8 * share * len(seen.servers[0].pushes) for share in SHARES]


def test_a_center_in_turn_is_that_of_equal_parts(tmp_path):
    config = in_turn("elastic_averaging", 1, "virtual", period=3)
    _, weights = run_tiny(config, tmp_path)
    config["scheme"]["sharding"] = "bytes"
    _, expected = run_tiny(config, tmp_path)
    assert_close(weights, expected, rtol=1e-12, atol=1e-14)


def test_groups_of_the_optimizer_follow_their_tensors():
    layers = [nn.Linear(2, 3), nn.Linear(3, 4)]
    groups = [{"params": layers[0].parameters()}, {"params": layers[1].parameters(), "lr": 0.5}]
    sgd = torch.optim.SGD(groups, lr=0.1)
    others = [], LiveOptions(sgd)
    in_turn = [SyncParameterServer(servers=number, sharding="round_robin") for number in (3, 5)]
    weights, vectors = held_weights(sgd, in_turn[0], *others)
    assert [weight.numel() for weight in weights] == [6, 4, 3, 12]
    assert [(each["num_weights"], each["options"]["lr"]) for each in vectors.segments] == [
        (6, 0.1),
        (4, 0.5),
        (3, 0.1),
        (12, 0.5),
    ]
    assert vectors.shares == [10, 3, 12]
    with pytest.raises(SettingError, match=r"^scheme\.servers: 5 servers, and 4 tensors"):
        held_weights(sgd, in_turn[1], *others)


RESNET = "cluster=minotauro workload=resnet50 data=synthetic workers=4"
SERVED = "scheme=sync_parameter_server scheme.servers=3"
IN_TURN = f"{SERVED} scheme.sharding=round_robin"


def point_with(*words):
    return Point.of(composed(" ".join(words).split(), REPOSITORY))


def received_by(clock):
    """Bytes of each push, by server."""
    servers = clock.report().servers
    return [server.bytes_received / len(servers[0].pushes) for server in servers]


def test_without_training_messages_have_the_shares_of_the_tensors():
    """Of the workload, or of the network that would be trained, with its statistics."""
    clock, equal = (
        simulate_point(point_with(RESNET, each), 12).completed() for each in (IN_TURN, SERVED)
    )
    tensors = point_with(RESNET).workload.sizes_of_tensors
    assert received_by(clock) == [4 * sum(tensors[server::3]) for server in range(3)]
    assert len({each // 100 for each in received_by(equal)}) == 1
    assert clock.kernel.now > equal.kernel.now
    point = point_with("cluster=virtual data=synthetic model.network.width=4", IN_TURN)
    sizes = [weight.numel() for weight in point.model.build().parameters()]
    statistics = 4 * 2 * 3 * 4  # of three BatchNorm layers, in pushes to the first server
    shares = [4 * sum(sizes[server::3]) + statistics * (server == 0) for server in range(3)]
    assert received_by(simulate_point(point, 12).completed()) == shares


@pytest.mark.parametrize(
    ("without", "words", "message"),
    [
        ("", "scheme.servers=200", r"scheme\.servers: 200 servers for the 161 tensors"),
        ("", "workload.tensors=[]", r"workload\.tensors: .*paceline calibrate --count --write"),
        (
            "cluster=minotauro",
            "cluster=local cluster.accelerator=cpu cluster.step_seconds=1",
            r"scheme\.sharding: workload=",
        ),
        ("", "scheme.sharding=by_name", r"scheme\.sharding: "),
    ],
)
def test_what_cannot_be_shared_in_turn_is_refused_in_a_line(without, words, message):
    with pytest.raises(SettingError, match=f"^{message}") as error:
        point_with(RESNET.replace(without, ""), IN_TURN, words)
    assert "\n" not in str(error.value)
