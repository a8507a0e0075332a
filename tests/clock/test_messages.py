"""How both clocks carry out the messages of a rule, and what the rule is answered."""

from types import SimpleNamespace

import pytest
import torch

from paceline.clock.virtual.virtual_links import VirtualLinks
from paceline.clock.wall.rule_links import OwnWeightsLinks, ServedLinks
from paceline.clock.wall.rule_strategy import RuleStrategy
from paceline.scheme.rule import Adopt, Apply, Mean, Message, PairMean, Push

GRADIENT = torch.tensor([1.0])


def everything():
    """What a message is answered is what the next one sends."""
    mean = yield Mean(GRADIENT)
    weights = yield Apply(mean)
    pushed = yield Push(weights)
    assert (yield PairMean(3)) == "answer to pair"
    yield Adopt(pushed)


def recorded(verb, *, waits):
    """A verb that notes how it is used, and answers with its name."""

    def use(links, *values):
        links.verbs.append((verb, *values))
        return f"answer to {verb}"

    def wait_and_use(links, *values):
        yield "an event"
        return use(links, *values)

    return wait_and_use if waits else use


def links_of(base, **waits):
    verbs = {
        kind.verb: recorded(kind.verb, waits=waits.get(kind.verb, False))
        for kind in Message.__subclasses__()
    }
    return type("Recorded", (base,), {**verbs, "__init__": lambda links: None, "verbs": []})()


EXPECTED = [
    ("mean", GRADIENT),
    ("apply", "answer to mean"),
    ("push", "answer to apply"),
    ("pair", 3),
    ("adopt", "answer to push"),
]


def test_real_processes_answer_each_message_of_a_rule():
    links = links_of(object)
    RuleStrategy._carry_out(SimpleNamespace(_links=links), everything())
    assert links.verbs == EXPECTED


def test_the_virtual_clock_answers_after_what_a_message_waits_for():
    links = links_of(VirtualLinks, mean=True, push=True)
    assert list(links.carry_out(everything())) == ["an event", "an event"]
    assert links.verbs == EXPECTED


@pytest.mark.parametrize("kind", Message.__subclasses__())
def test_every_kind_of_message_has_a_verb(kind):
    assert hasattr(OwnWeightsLinks, kind.verb)
    assert hasattr(VirtualLinks, kind.verb)
    assert hasattr(ServedLinks, kind.verb) == (kind in (Push, Adopt))
