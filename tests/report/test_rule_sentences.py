"""A broken rule of comparison is a red line of the page, and says so in words."""

import pytest

from paceline.analysis.analyse import analyse
from paceline.report.findings import read_findings
from paceline.report.number_format import MISSING
from paceline.report.page import report
from paceline.report.page_tables import scaling
from paceline.report.rule_sentences import broken_rules
from tests.made_decisions import arm, made_family, write_decided
from tests.made_reports import make_run, write_reports


def one_and_two(difference):
    """Points of one and of two workers, whose top-1 differs by `difference`."""
    return [
        make_run("sync_allreduce", workers, 32, seed, top1=0.9 + add, test_top1=0.9 + add)
        for workers, add in ((1, 0), (2, difference))
        for seed in (0, 1, 2)
    ]


def test_a_broken_rule_is_a_red_line_with_its_numbers(tmp_path):
    folder = write_reports(tmp_path / "made", one_and_two(-0.03))
    analyse(folder)
    findings = read_findings(folder)
    ((headline, text),) = broken_rules(findings)
    cases = "Rule 1 of comparison is broken in 1 of 1 case"
    assert headline == f"{cases}, none of them of a scheme to use"
    assert text.startswith("Rule 1 of comparison is broken in 1 of 1 case (a speed-up is at equal ")
    assert "workers 2, -3.00 points (-3.00 to -3.00, n = 3)" in text
    page = report(folder).read_text()
    assert text.endswith(" None is of a scheme to use.")
    assert f"<summary>✗ {headline}</summary>" in page
    assert f"<p>✗ {text}</p>" in page.split('<section class="broken">')[1]
    assert ".broken { border-color: var(--bad); background: var(--warn); color: var(--bad)" in page
    assert f"**✗ {text}**" in (folder / "README.md").read_text()
    assert [row[-2] for row in scaling(findings).rows] == [MISSING, "throughput only"]


NONE, GOSSIP = " None is of a scheme to use.", " Of a scheme to use: gossip, 4 workers."


@pytest.mark.parametrize(("top1", "number", "said"), [(0.9, "none", NONE), (0.87, "1", GOSSIP)])
def test_a_broken_rule_says_whether_it_touches_what_to_use(tmp_path, top1, number, said):
    runs = [run for run in made_family() if run["scheme"] != "gossip" or run["workers"] == 1]
    folder = write_decided(tmp_path / "made", [*runs, *arm("gossip", 101, top1)])
    analyse(folder)
    (rule,) = broken_rules(read_findings(folder))
    assert rule.headline.endswith(f" cases, {number} of them of a scheme to use")
    assert rule.text.endswith(f").{said}")


def test_without_one_there_is_no_red_line(reports, findings):
    assert 'class="broken"' not in reports(one_and_two(0))
    table = scaling(findings(one_and_two(0)))
    assert list(table.columns)[-2:] == ["counts as", "kind"]
    assert [row[-2] for row in table.rows] == [MISSING, "at equal accuracy"]
