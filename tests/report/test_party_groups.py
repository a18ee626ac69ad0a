"""Many parties in few lines, with none left out and none mistaken for another."""

import doctest
import html
import re

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from fedsynth.cli.plan_table import plan_table
from fedsynth.experiment.config import resolve
from fedsynth.experiment.grid import make_jobs
from fedsynth.report import party_groups as crowd
from fedsynth.report import privacy_section
from fedsynth.report.report_data import privacy_rows, report_facts

NOTHING = pd.DataFrame(columns=["method", "epsilon", "seed", "stage", "metric", "value"])


def test_examples_hold():
    assert doctest.testmod(crowd).failed == 0


@given(st.sets(st.integers(0, 30), min_size=1))
def test_short_names_of_parties_name_just_these(parties):
    words = crowd.who(sorted(parties))
    if words.endswith("parties"):
        assert int(words.split()[0]) == len(parties)
        return
    named = set()
    for piece in words.split(", "):
        first, _, last = piece.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == parties


@given(st.lists(st.integers(0, 3)))
def test_groups_hold_everything_once_and_only_what_is_alike(items):
    groups = crowd.alike(items, lambda item: item % 2)
    assert sorted(x for group in groups for x in group) == sorted(items)
    assert all(len({x % 2 for x in group}) == 1 for group in groups)
    assert len(groups) == len({x % 2 for x in items})


def run_of(parties, **keys):
    keys = {"data": "shapes", "partition": "iid", "parties": parties, "epsilon": [3], **keys}
    keys = {"scenario": "iid_parties", "preset": "smoke", "method": ["gs_wgan"], **keys}
    config = resolve({**keys, "accounting": "rdp"})
    return config, make_jobs(config, "nowhere")


def lines_of(page):
    """The lines of the privacy table, cell by cell."""
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.S)
    found = [re.findall(r"<t[dh].*?</t[dh]>", row) for row in rows]
    texts = [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in found]
    return [line for line in texts if len(line) == 10 and line[2] != "Seen by"]


def test_a_thousand_parties_are_a_few_lines_of_the_report():
    keys = {"users_per_round": 10, "gs_wgan": {"subsets": 1, "steps": 130}}
    config, jobs = run_of(1000, **keys)
    rows = privacy_rows(jobs)
    page = privacy_section.build(report_facts(config, jobs, "", []), NOTHING)
    lines = lines_of(page)
    assert len(lines) == len({(r.view, r.steps, r.epsilon_pld) for r in rows}) < 10
    seen = [line for line in lines if line[2] == "curator"]
    assert [line[0] for line in seen] == ["0-299", "300-999"]
    assert [line[5] for line in seen] == ["2", "1"]
    table = plan_table(jobs, "")
    assert list(table.columns[3].cells).count("0-299") == 2
    assert table.row_count == 4


def test_a_few_parties_have_a_line_each():
    config, jobs = run_of(3, gs_wgan={"subsets": 3, "steps": 3, "per_round": 1})
    page = privacy_section.build(report_facts(config, jobs, "", []), NOTHING)
    lines = [line for line in lines_of(page) if line[2] == "curator"]
    assert [line[0] for line in lines] == ["0", "1", "2"]
