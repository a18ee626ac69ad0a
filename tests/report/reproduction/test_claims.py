"""Claims of the papers: which cells are compared, and what follows from our numbers."""

from __future__ import annotations

import dataclasses

import pytest

from fedsynth.report.paper_comparison.numbers import paper_numbers
from fedsynth.report.reproduction.claims import Claim, Verdict, all_claims, standing
from fedsynth.report.reproduction.coverage import CellKey, Coverage, Result
from fedsynth.report.reproduction.recipes import Cells, Status

PSG = "Chen et al. 2022 (PSG)"


def claim(**changes) -> Claim:
    own = Claim(
        PSG,
        "PSG is better",
        ("1a",),
        Cells.parse({"table": "1a", "method": "psg"}, "here", ("table", "method")),
        Cells.parse({"table": "1a", "method": "dp_merf"}, "here", ("table", "method")),
        ignore=("spc", "setting"),
    )
    return dataclasses.replace(own, **changes)


def cells(values: dict[str, float], status: Status = Status.PUBLISHED) -> list[Coverage]:
    """The printed cells of table 1a, with our number for the methods named."""
    found = []
    for row in paper_numbers():
        if (row.source, row.table) != (PSG, "1a"):
            continue
        result = None
        if row.method in values:
            result = Result(
                CellKey.of(row),
                values[row.method],
                None,
                1,
                "run",
                str(status),
                "",
                "",
                "",
                "",
                0.0,
            )
        found.append(Coverage(row, status if result else Status.NOT_RUN, "", result))
    return found


def test_cells_of_one_data_set_and_epsilon_are_compared() -> None:
    found = standing(claim(), cells({"psg": 0.9, "dp_merf": 0.8}))
    assert (found.verdict, found.holds, found.compared) == (Verdict.REACHED, 4, 4)
    assert (found.published, found.printed, found.printable) == (4, 4, 4)
    found = standing(claim(), cells({"psg": 0.9, "dp_merf": 0.8}, Status.REDUCED))
    assert (found.holds, found.published) == (4, 0)


@pytest.mark.parametrize(
    ("values", "by", "verdict"),
    [
        ({"psg": 0.7, "dp_merf": 0.8}, 0.0, Verdict.MISSED),
        ({"psg": 0.79, "dp_merf": 0.8}, -0.02, Verdict.REACHED),
        ({"psg": 0.81, "dp_merf": 0.8}, 0.02, Verdict.MISSED),
        ({"psg": 0.9}, 0.0, Verdict.NOT_TESTED),
        ({}, 0.0, Verdict.NOT_TESTED),
    ],
)
def test_verdicts(values: dict[str, float], by: float, verdict: Verdict) -> None:
    assert standing(claim(by=by), cells(values)).verdict == verdict


def test_some_comparisons_make_a_claim_reached_in_part() -> None:
    made = cells({"psg": 0.9, "dp_merf": 0.8})
    first = next(i for i, cell in enumerate(made) if cell.row.method == "psg")
    worse = dataclasses.replace(made[first].result, ours=0.1)
    made[first] = dataclasses.replace(made[first], result=worse)
    found = standing(claim(), made)
    assert (found.verdict, found.holds, found.compared) == (Verdict.IN_PART, 3, 4)


def test_every_claim_is_about_printed_cells_and_printed_numbers_bear_most_out() -> None:
    rows = [Coverage(row, Status.NOT_RUN, "") for row in paper_numbers()]
    papers = set()
    for each in all_claims():
        papers.add(each.paper.partition(",")[0])
        found = standing(each, rows)
        if each.found is not None:
            assert found.verdict == each.found
            assert each.evidence
            assert each.link
            continue
        assert found.printable > 0, each.text
        assert found.printed > found.printable / 2, each.text
        assert found.verdict == Verdict.NOT_TESTED
    assert len(papers) == 4  # the paper of PSG and its supplement are one
