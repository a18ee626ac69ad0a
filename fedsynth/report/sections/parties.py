"""Section of the parties: whose records they are, as a figure and a table."""

from __future__ import annotations

import functools

from fedsynth.report.elements import Column, ReportContext, Row, Section, Table
from fedsynth.report.figure_files import embedded
from fedsynth.report.party_split import MAX_SHOWN, party_label, split_figure, split_lines


def party_section(context: ReportContext) -> Section | None:
    """None if the public facts of the parties are not known, or there is one party."""
    parties, data = context.data.parties, context.data.info
    if data is None or len(parties) < 2:
        return None
    text = "; ".join(" ".join(line.split()) for line in split_lines(parties, data))
    draw = functools.partial(split_figure, parties, data)
    narrow = functools.partial(draw, narrow=True)
    alt = f"Records of each party by class. {text}"
    picture = embedded(context, "parties", alt, draw, narrow)
    if picture is None:
        return None
    classes = sorted({label for party in parties for label in party.class_counts})
    rows = [
        Row((party_label(p), f"{p.records:,}", *(f"{p.class_counts.get(c, 0):,}" for c in classes)))
        for p in parties[:MAX_SHOWN]
    ]
    columns = [Column("Party", "label"), Column("Records")]
    columns += [Column(data.class_text(label)) for label in classes]
    caption = "Training records of each party by class"
    if len(parties) > MAX_SHOWN:
        caption += f"; the first {MAX_SHOWN} of {len(parties):,} parties"
    return Section(
        "parties",
        "Parties and their records",
        {"picture": picture, "table": Table(caption, columns, rows)},
        "Parties",
    )
