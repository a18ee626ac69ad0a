"""Claims of the five papers, and how they stand by our numbers.

`claims.yaml` holds each claim as two selections of printed cells, of which one is said to be
higher. Cells of the two that agree in everything else are compared, ours and the printed ones. A
claim that a page of this repository tests otherwise names its verdict and the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from fedsynth.report.reproduction.coverage import Coverage
from fedsynth.report.reproduction.recipes import CELL_KEYS, Cells, Status

FILE = Path(__file__).with_suffix(".yaml")
PAIRED = ("data", "setting", "epsilon", "spc", "classifier", "protocol", "metric")


class Verdict(StrEnum):
    """The verdict on a claim."""

    REACHED = "reached"
    IN_PART = "in part"  # in some comparisons
    MISSED = "missed"  # in none
    CONTRADICTED = "contradicted"  # shown to be wrong, and why
    NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Claim:
    """A claim: one selection of cells is higher than another, or what a page has found."""

    paper: str
    text: str
    tables: tuple[str, ...] = ()
    higher: Cells | None = None
    than: Cells | None = None
    by: float = 0.0
    ignore: tuple[str, ...] = ()  # columns in which compared cells may differ
    found: Verdict | None = None
    evidence: str = ""
    link: str = ""


@dataclass(frozen=True)
class Standing:
    """A claim by our numbers: in how many of the comparisons made it holds."""

    claim: Claim
    verdict: Verdict
    holds: int = 0
    compared: int = 0
    published: int = 0  # comparisons of two cells at their published setting
    printed: int = 0  # of all comparisons, those in which the printed numbers hold
    printable: int = 0


def all_claims() -> list[Claim]:
    """The claims of `claims.yaml`, in its order."""
    return [_claim(given) for given in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def _claim(given: Mapping[str, Any]) -> Claim:
    if "found" in given:
        return Claim(
            given["paper"],
            given["claim"],
            found=Verdict(given["found"]),
            evidence=given["evidence"],
            link=given["link"],
        )
    higher, than = _cells(given["higher"]), _cells(given["than"])
    return Claim(
        given["paper"],
        given["claim"],
        tuple(dict.fromkeys((*higher.values["table"], *than.values["table"]))),
        higher,
        than,
        float(given.get("by", 0.0)),
        tuple(given.get("ignore", ())),
    )


def _cells(given: Mapping[str, Any]) -> Cells:
    return Cells.parse(given, "claims", (*CELL_KEYS, "table"))


def standing(claim: Claim, cells: Iterable[Coverage]) -> Standing:
    """The verdict on a claim by these cells, with its comparisons."""
    if claim.found is not None or claim.higher is None or claim.than is None:
        return Standing(claim, claim.found or Verdict.NOT_TESTED)
    own = {cell.row: cell for cell in cells if cell.row.source == claim.paper}
    keys = [key for key in PAIRED if key not in claim.ignore]
    pairs = [
        (own[one], own[other])
        for one in claim.higher.select(own)
        for other in claim.than.select(own)
        if one.table == other.table or set(claim.higher.values["table"]).isdisjoint([other.table])
        if all(getattr(one, key) == getattr(other, key) for key in keys)
    ]
    made = [(a, b) for a, b in pairs if a.result is not None and b.result is not None]
    holds = sum(a.result.ours > b.result.ours + claim.by for a, b in made if a.result and b.result)
    verdict = Verdict.NOT_TESTED
    if made:
        verdict = Verdict.REACHED if holds == len(made) else Verdict.IN_PART
        verdict = verdict if holds else Verdict.MISSED
    exact = sum(a.status == b.status == Status.PUBLISHED for a, b in made)
    printed = sum(a.row.value > b.row.value + claim.by for a, b in pairs)
    return Standing(claim, verdict, holds, len(made), exact, printed, len(pairs))


def standings(cells: Sequence[Coverage]) -> list[Standing]:
    """The standing of every claim by these cells."""
    return [standing(claim, cells) for claim in all_claims()]
