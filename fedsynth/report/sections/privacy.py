"""Section of privacy: the guarantee, the assumptions, and the spending of every party."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence

from fedsynth.core.plan import readable_view
from fedsynth.core.text import epsilon_text
from fedsynth.privacy.stored_audits import SCOPE, StoredAudit, stored_audits
from fedsynth.report.elements import Column, ReportContext, Row, Section, Table
from fedsynth.report.party_groups import (
    GROUPED_FROM,
    group_by,
    number_range,
    party_ranges,
)
from fedsynth.report.report_data import PrivacyRow
from fedsynth.storage.releases import CERTIFICATE_SUFFIX, RELEASES

MAX_ROWS = 200  # per method and epsilon; the ledger holds all of them

_RELATIONS = {
    "add_remove": "add or remove one",
    "replace_one": "replace one",
}

_COLUMNS = (
    Column("Party"),
    Column("Stage"),
    Column("View", "text", "the observer for whom the epsilon holds"),
    Column("Records"),
    Column("Sampling rate", title="probability that a step uses a record"),
    Column("Steps"),
    Column("Noise multiplier", title="standard deviation of the noise over the sensitivity"),
    Column("ε PLD", title="privacy loss distributions: the tightest bound that holds"),
    Column("ε RDP", title="Rényi accounting: a looser bound, as many tools report it"),
    Column("ε paper", title="as the publication counts it, for comparison with its numbers"),
    Column("ε exchange", title="PLD, if one unit is exchanged for another (replace one)"),
)


_AUDIT_COLUMNS = (
    Column("Method", "label"),
    Column("Attack", "text"),
    Column("Unit, neighbours", "text"),
    Column("View", "text", "the observer who attacks"),
    Column("Runs", title="in each of two worlds"),
    Column("ε claimed", title="the budget of the audited code, or what the view counts"),
    Column("ε audited", title="lower bound by attack, for noise of this kind in any amount"),
    Column("ε theoretical", title="the accountant's, of the events that were charged"),
    Column("Confidence", title="of the lower bound"),
    Column("Canary", title="how far the canary moves the values, of what the claim allows"),
)


@dataclasses.dataclass(frozen=True)
class Spending:
    """The spending of the parties under one method and budget."""

    summary: str
    table: Table


def privacy_section(context: ReportContext) -> Section:
    """Terms of the guarantee, references, spending per method and budget, public facts."""
    data = context.data
    noise = (
        "operating system entropy"
        if data.noise_seed is None
        else f"reproducible, noise_seed={data.noise_seed}"
    )
    terms = {
        "Protected unit": data.unit,
        "Neighbours": _RELATIONS.get(data.relation, data.relation),
        "δ": f"{data.delta:g}",
        "Noise calibrated by": data.accounting.upper(),
        "Source of noise": noise,
    }
    content = {
        "terms": terms,
        "references": _references(context),
        "spending": _spending(data.privacy),
        "assumptions": data.assumptions,
        "exchange": data.exchange,
        "audits": _audits(context),
        "audits_scope": SCOPE,
        **_certificates(context),
    }
    return Section("privacy", "Privacy: guarantee and spending per party", content, "Privacy")


def _certificates(context: ReportContext) -> dict[str, object]:
    """The certificates of the releases with their links, relative to the page."""
    folder = context.run.path
    found = sorted((folder / RELEASES).glob(f"*/*{CERTIFICATE_SUFFIX}"))
    names = [path.relative_to(folder).as_posix() for path in found]
    shown = {name: context.link(name) if context.links else "" for name in names[:MAX_ROWS]}
    return {"certificates": shown, "more_certificates": len(names[MAX_ROWS:])}


def _audits(context: ReportContext) -> Table | None:
    """Audits of the code of this run's methods, where there are any."""
    names = sorted({row.method for row in context.data.privacy})
    found = [audit for name in names for audit in stored_audits().of_method(name)]
    commits = ", ".join(sorted({audit.commit for audit in found}))
    caption = (
        "Audits of the code of these methods: claimed, by attack at least, and theoretical "
        f"(commit {commits})"
    )
    return Table(caption, _AUDIT_COLUMNS, [_audit_row(a) for a in found]) if found else None


def _audit_row(audit: StoredAudit) -> Row:
    relation = _RELATIONS.get(audit.relation, audit.relation)
    return Row(
        (
            audit.name,
            audit.attack,
            f"{audit.unit}, {relation}",
            readable_view(audit.view),
            f"{audit.runs:,}",
            epsilon_text(audit.claimed_epsilon),
            epsilon_text(audit.audited_epsilon) + (" contradicted" if audit.contradicted else ""),
            epsilon_text(audit.theoretical_epsilon),
            f"{audit.confidence:.2%}",
            "–" if audit.canary_share is None else f"{audit.canary_share:.0%}",
        )
    )


def _references(context: ReportContext) -> list[str]:
    """Names of the methods that are not private, listed or measured."""
    listed = {method.name for method in context.data.methods if not method.private}
    metrics = context.metrics
    return sorted(listed | set(metrics.loc[metrics["epsilon"].map(math.isinf), "method"]))


def _spending(rows: Sequence[PrivacyRow]) -> list[Spending]:
    jobs: dict[tuple[float, str], list[PrivacyRow]] = defaultdict(list)
    for row in rows:
        jobs[row.epsilon, row.method].append(row)
    return [
        Spending(
            f"{method}, budget ε = {epsilon_text(epsilon)}: {_total(job_rows)}", _table(job_rows)
        )
        for (epsilon, method), job_rows in sorted(jobs.items())
    ]


def _total(rows: Sequence[PrivacyRow]) -> str:
    spent = [row.epsilon_pld for row in rows if row.epsilon_pld is not None]
    number = len({row.party for row in rows})
    parties = "1 party" if number == 1 else f"{number:,} parties"
    return f"{parties}, at most ε = {epsilon_text(max(spent))} spent" if spent else parties


def _table(rows: Sequence[PrivacyRow]) -> Table:
    """A line per party, stage and view; of many parties, equal lines are joined."""
    ordered = sorted(rows, key=lambda row: (row.stage, row.party, row.view))
    caption = "Every party, stage and view; ε includes all earlier releases of the party"
    groups = [[row] for row in ordered]
    if len({row.party for row in ordered}) > GROUPED_FROM:
        groups = group_by(ordered, lambda row: dataclasses.replace(row, party=0, records=0))
        caption += ". Parties with equal parameters and spending share a line"
    if len(groups) > MAX_ROWS:
        caption += f"; the first {MAX_ROWS} of {len(groups):,} lines, the ledger holds all"
    return Table(caption, _COLUMNS, [_row(group) for group in groups[:MAX_ROWS]])


def _row(group: Sequence[PrivacyRow]) -> Row:
    row = group[0]
    cells = (
        party_ranges([each.party for each in group]),
        row.stage,
        row.view,
        number_range(each.records for each in group),
        f"{row.sampling_rate:.4g}",
        f"{row.steps:,}",
        f"{row.noise_multiplier:.4g}",
        epsilon_text(row.epsilon_pld),
        epsilon_text(row.epsilon_rdp),
        epsilon_text(row.epsilon_paper),
        epsilon_text(row.epsilon_exchange),
    )
    return Row(cells, reference=math.isinf(row.epsilon))
