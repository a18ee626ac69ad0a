"""The part of the report that says what was promised to whom, and what each party spent."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence

import pandas as pd

from fedsynth.report import html
from fedsynth.report.party_groups import CROWD, alike, span, who
from fedsynth.report.report_data import PrivacyRow, ReportData
from fedsynth.report.summary import epsilon_words

ROWS_SHOWN = 200  # a method and epsilon; the ledger holds them all

_RELATIONS = {
    "add_remove": "add or remove one",
    "replace_one": "replace one",
}

_COLUMNS = (
    html.Column("Party"),
    html.Column("Stage"),
    html.Column("Seen by", number=False, title="who looks: the epsilon holds for this view"),
    html.Column("Records"),
    html.Column("Sampling rate", title="probability that a step uses a record"),
    html.Column("Steps"),
    html.Column("Noise multiplier", title="standard deviation of the noise over the sensitivity"),
    html.Column("ε PLD", title="privacy loss distributions: the tightest we can defend"),
    html.Column("ε RDP", title="Rényi accounting: a looser bound, as many tools report it"),
    html.Column("ε paper", title="as the publication counts it, to compare with its numbers"),
)


def banner(info: ReportData) -> str:
    """The warning that stands above everything when the noise can be repeated."""
    if info.noise_seed is None:
        return ""
    return (
        '<p class="banner" role="note"><strong>Reproducible noise: an experiment, not a release.'
        f"</strong> The noise came from noise_seed={html.text(info.noise_seed)}. Whoever knows "
        "the seed can take it off again, so nothing here protects anybody.</p>"
    )


def build(info: ReportData, metrics: pd.DataFrame) -> str:
    """Terms, assumptions, and a table a method and epsilon."""
    noise = (
        "operating system entropy"
        if info.noise_seed is None
        else f"reproducible, noise_seed={info.noise_seed}"
    )
    terms = html.definitions(
        (
            ("Protected unit", info.unit),
            ("Neighbours", _RELATIONS.get(info.relation, info.relation)),
            ("δ", f"{info.delta:g}"),
            ("Noise calibrated to", info.accounting.upper()),
            ("Noise from", noise),
        )
    )
    return html.section(
        "privacy",
        "Privacy: what each party promised and spent",
        terms,
        _references(info, metrics),
        *_tables(info.privacy),
        _assumptions(info.assumptions),
        html.paragraph(
            "The cost of choosing settings is not part of any ε here; choose them on other data, "
            "or count it.",
            "soft",
        ),
    )


def _references(info: ReportData, metrics: pd.DataFrame) -> str:
    named = {method.name for method in info.methods if not method.private}
    measured = set(metrics.loc[metrics["epsilon"].map(math.isinf), "method"])
    if not (names := sorted(named | measured)):
        return ""
    verb = "is a reference" if len(names) == 1 else "are references"
    return (
        '<p class="banner" role="note"><strong>Not private (ε = ∞):</strong> '
        f"{html.text(', '.join(names))} {verb}, made from the raw data. They show what privacy "
        "costs and promise nothing to anybody.</p>"
    )


def _tables(rows: Sequence[PrivacyRow]) -> list[str]:
    jobs: dict[tuple[float, str], list[PrivacyRow]] = defaultdict(list)
    for row in rows:
        jobs[(row.epsilon, row.method)].append(row)
    return [
        html.folded(
            f"{method}, budget ε = {epsilon_words(epsilon)}: {_spent(of_job)}",
            _table(of_job),
            opened=position == 0,
        )
        for position, ((epsilon, method), of_job) in enumerate(sorted(jobs.items()))
    ]


def _spent(rows: Sequence[PrivacyRow]) -> str:
    known = [row.epsilon_pld for row in rows if row.epsilon_pld is not None]
    parties = len({row.party for row in rows})
    who = "1 party" if parties == 1 else f"{parties:,} parties"
    return f"{who}, at most ε = {epsilon_words(max(known))} spent" if known else who


def _table(rows: Sequence[PrivacyRow]) -> str:
    order = sorted(rows, key=lambda row: (row.stage, row.party, row.view))
    caption = "Every party, stage and viewer; ε counts all that a party released so far"
    lines = [[row] for row in order]
    if len({row.party for row in order}) > CROWD:
        lines = alike(order, lambda row: dataclasses.replace(row, party=0, records=0))
        caption += ". Parties that did and spent the same share a line"
    if len(lines) > ROWS_SHOWN:
        caption += f"; the first {ROWS_SHOWN} of {len(lines):,}, the ledger holds all"
    return html.table(
        caption,
        _COLUMNS,
        [
            (
                "" if math.isfinite(row.epsilon) else "reference",
                (
                    who([one.party for one in line]),
                    row.stage,
                    row.view,
                    span(one.records for one in line),
                    f"{row.sampling_rate:.4g}",
                    f"{row.steps:,}",
                    f"{row.noise_multiplier:.4g}",
                    epsilon_words(row.epsilon_pld),
                    epsilon_words(row.epsilon_rdp),
                    epsilon_words(row.epsilon_paper),
                ),
            )
            for line in lines[:ROWS_SHOWN]
            for row in line[:1]
        ],
    )


def _assumptions(assumptions: Sequence[str]) -> str:
    if not assumptions:
        return ""
    return "<h3>Treated as public</h3>" + html.bullets(assumptions)
