"""Means in pairs between two real processes, inside a node and between nodes."""

import pytest
import torch.distributed as dist

from paceline.clock.run_spec import RunSpec
from paceline.clock.vector_spec import VectorSpec
from paceline.clock.wall.pair_link import pair_link
from paceline.exchange.liveness import LostPeerError
from paceline.exchange.process_group import join, leave, receive_json, send_json, this_node
from paceline.exchange.wire import worker_wire
from paceline.scheme.gossip import Gossip
from tests.exchange.talking import WIRES
from tests.launching import launch

NUM_WEIGHTS = 3
BODY = 8 * NUM_WEIGHTS


def talk(nodes):
    """Worker 1 asks, worker 0 answers: what each has at the end on each node, and what each is told
    at last where the connections of one have ended.
    """
    join(60, "cpu")
    kept = [average(node or this_node()) for node in nodes]
    told = [lose(worker) for worker in (0, 1)]
    leave()
    return kept, told


def linked():
    vectors = VectorSpec([{"num_weights": NUM_WEIGHTS}], dtype="float64")
    return pair_link(Gossip("ring"), RunSpec(2), vectors)


def average(node):
    """From 4 and 0; the asked one's step adds 10 when the question has come, then it ends."""
    worker_wire.this_node = lambda: node
    link = linked()
    link.begin()
    (_asked if dist.get_rank() == 0 else _asking)(link)
    link.finish()
    return link.weights.tolist(), link.averages, link.bytes_exchanged


def _asked(link):
    with link.step():
        send_json("ask", 1)
        while link.bytes_exchanged[1] == 0:
            pass
        link.weights.add_(10)
    send_json("ended", 1)


def _asking(link):
    link.weights.fill_(4)
    receive_json(0)
    link.average(0)
    with link.step():
        link.weights.sub_(1)
    receive_json(0)
    link.average(0)


def lose(lost):
    """Connections of worker `lost` end; what the other one is told at last."""
    link = linked()
    link.begin()
    worker, told = dist.get_rank(), None
    if worker == lost:
        ends = link._wire._ends.values()
        for end in list(ends):
            (end.connection if worker == 0 else end._connection).shutdown(2)
        send_json("its connection has ended", 1 - worker)
    else:
        receive_json(lost)  # a question before that is still answered
        try:
            link.average(0) if worker == 1 else link.finish()
        except LostPeerError as error:
            told = str(error)
    dist.barrier()
    return told


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    target, nodes = f"{__name__}:talk", [*WIRES.values()]
    return launch(target, (nodes,), workers=2, servers=0, log_folder=folder)


@pytest.mark.parametrize("number", range(len(WIRES)), ids=WIRES)
def test_no_mean_is_formed_within_a_step_and_the_asked_one_answers_to_the_end(number, found):
    """(4 + 10) / 2, then (6 + 7) / 2; bytes with the first answer, which says that it is there."""
    asked, asking = (kept[number] for kept, _ in found)
    assert asked == ([6.5] * NUM_WEIGHTS, [(1, 1, 1), (1, 1, 1)], (3 * BODY, 2 * BODY))
    assert asking == ([6.5] * NUM_WEIGHTS, [(0, 0, 0), (0, 1, 1)], (2 * BODY, 3 * BODY))


@pytest.mark.parametrize("lost", [0, 1])
def test_the_end_of_a_neighbour_is_an_error_and_no_hang(lost, found):
    told = [of_worker[lost] for _, of_worker in found]
    assert told[lost] is None
    assert told[1 - lost].startswith(f"worker {lost} is gone: ")
