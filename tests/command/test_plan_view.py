"""What is shown of plans, by hand."""

from rich.console import Console

from paceline.command.plan_view import plan_view
from paceline.prediction.race import ordered, shortlist
from tests.prediction.test_whole_steps import MEMORY, compared, planned


def shown(parts):
    """Return the lines as in a pipe, each without surplus spaces."""
    console = Console(width=200, soft_wrap=True, highlight=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def views(*batches, seconds):
    return shown(plan_view(batches, ordered(shortlist(batches, MEMORY), seconds), MEMORY))


def test_a_plan_is_shown_with_its_numbers():
    lines = views(
        planned(10, plain=1.0, recompute=1.25),
        planned(20, plain=2.3),
        planned(40, bf16=0.5, plain=9.0),
        planned(80, bf16=0.5),
        seconds=[[1.25] * 6],
    )
    assert "20 1,000.00 2,300.00 0.00 2,300.00 0.00" in lines
    assert "40 1,000.00 9,000.00 0.00 500.00 0.00" in lines
    assert "80 1,000.00 none at least 0.00 500.00 0.00" in lines
    assert "b 1,000.00 0.00 plain 1,000.00 0.00 -" in lines
    assert "choice 10 0.00 1,000.00 1,250.00 6 8" in lines


def test_only_a_significant_difference_is_not_called_a_tie():
    tie = runner_up(compared([1.0, 1.1] * 5, [1.1, 1.01] * 5))
    assert tie.endswith(" %), tied")
    clear = runner_up(compared([1.0] * 6, [1.1] * 6))
    assert clear.endswith("+10.00 % (+10.00 to +10.00 %)")


def runner_up(of):
    lines = shown(plan_view([planned(10, plain=1.0)], of, MEMORY))
    return next(line for line in lines if line.startswith("runner-up "))
