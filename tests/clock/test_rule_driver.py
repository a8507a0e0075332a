"""The driver of rules: which verb carries out a message, and what the rule is answered."""

from dataclasses import fields

import pytest
import torch

from paceline.clock.links import AbstractLinks, RuleDriver, at_once, complete
from paceline.clock.run_spec import RunSpec
from paceline.clock.virtual.virtual_links import VirtualLinks
from paceline.clock.wall.wall_links import OwnWeightsLinks
from paceline.scheme.rule import AbstractScheme, Adopt, Apply, Mean, Message, PairMean, Push

GRADIENT, WEIGHTS = torch.tensor([1.0]), torch.tensor([2.0])


def recorded(verb):
    """A verb that notes how it is used, and answers with its name."""

    def use(self, *values):
        self.verbs.append((verb, *values))
        return f"answer to {verb}"

    return at_once(use)


class Recorder:
    """`verbs`: those that were used, in order."""

    def __init__(self):
        self.verbs = []


VERBS = {kind.verb: recorded(kind.verb) for kind in Message.__subclasses__()}
RecordedLinks = type("RecordedLinks", (Recorder, AbstractLinks), VERBS)


class Everything(AbstractScheme):
    """Each message once; what it is answered is what it sends next."""

    view = None

    def step(self, worker):
        self.view = worker
        mean = yield Mean(worker.gradient)
        weights = yield Apply(mean)
        pushed = yield Push(weights)
        paired = yield PairMean(3)
        assert paired == "answer to pair"
        yield Adopt(pushed)

    def end(self, weights, steps):
        yield Push((weights, steps))


def test_each_message_has_a_verb_and_each_answer_reaches_the_rule():
    links, scheme = RecordedLinks(), Everything()
    complete(RuleDriver(scheme, links, 1, RunSpec(4)).step(GRADIENT, WEIGHTS, 7, 0.5))
    assert links.verbs == [
        ("mean", GRADIENT),
        ("apply", "answer to mean"),
        ("push", "answer to apply"),
        ("pair", 3),
        ("adopt", "answer to push"),
    ]
    view = scheme.view
    assert (view.gradient, view.weights) == (GRADIENT, WEIGHTS)
    assert (view.index, view.num_workers, view.num_steps, view.progress) == (1, 4, 7, 0.5)


@pytest.mark.parametrize("kind", Message.__subclasses__())
def test_every_kind_of_message_has_a_verb(kind):
    links = RecordedLinks()
    message = kind(*[WEIGHTS for _ in fields(kind)])
    complete(links.carry_out(message))
    assert links.verbs == [(kind.verb, *[WEIGHTS for _ in fields(kind)])]
    assert hasattr(OwnWeightsLinks, kind.verb)
    assert hasattr(VirtualLinks, kind.verb)


def test_what_has_no_verb_is_said():
    with pytest.raises(TypeError, match="no verb for Message"):
        complete(RecordedLinks().carry_out(Message()))


def test_the_end_of_a_run_is_driven_too():
    links = RecordedLinks()
    complete(RuleDriver(Everything(), links, 0, RunSpec(1)).end(WEIGHTS, 9))
    assert links.verbs == [("push", (WEIGHTS, 9))]


def test_a_verb_of_the_wall_clock_may_not_wait():
    class Waiting(RecordedLinks):
        def mean(self, value):
            yield "somebody else"

    with pytest.raises(RuntimeError, match="wall clock waits for 'somebody else'"):
        complete(RuleDriver(Everything(), Waiting(), 0, RunSpec(1)).step(GRADIENT, WEIGHTS, 0, 0.0))
