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
        planned(10, 100, plain=1.0, recompute=1.25),
        planned(20, plain=2.0),
        planned(40, bf16=0.5),
        seconds=[[1.25] * 6],
    )
    assert "10 1,000.00 ms 1,000.00 ms 10 0.00 100 100 s" in lines
    assert "20 1,000.00 ms 2,000.00 ms 10 0.00 - -" in lines
    assert "40 1,000.00 ms none - at least 0.00" in " ".join(lines)
    assert "b plain 1,000.00 ms 0.00 1,000.00 ms 0.00" in lines
    assert "choice 10 1,000.00 ms 1,250.00 ms -20.0 % 8 6" in lines
    assert any(line.startswith("chosen: batch size 10, 8 images/s; ") for line in lines)
    assert any(line.startswith("runner-up: none") for line in lines)
    assert any(line.startswith("not limited by memory") for line in lines)


def test_what_memory_costs_is_shown():
    lines = views(planned(10, plain=1.0, bf16=0.6), seconds=[[1.0]])
    (limited,) = [line for line in lines if line.startswith("limited by memory: ")]
    assert "40.0 % less; b: bf16" in limited


def test_only_a_significant_difference_is_not_called_a_tie():
    tie = compared([1.0, 1.1] * 5, [1.1, 1.01] * 5)
    (line,) = runner_up(tie)
    assert ", statistically tied; b: " in line
    clear = compared([1.0] * 6, [1.1] * 6)
    (line,) = runner_up(clear)
    assert "seconds per image: +10.00 % (+10.00 to +10.00 %); " in line


def runner_up(of):
    lines = shown(plan_view([planned(10, plain=1.0)], of, MEMORY))
    return [line for line in lines if line.startswith("runner-up of 2 compared, ")]
