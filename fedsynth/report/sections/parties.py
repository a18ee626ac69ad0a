"""Section of the parties: whose records they are, as a figure and a table."""

from __future__ import annotations

from fedsynth.report.elements import Column, Picture, ReportContext, Row, Section, Table
from fedsynth.report.figures import DARK, LIGHT, render
from fedsynth.report.party_split import MAX_SHOWN, party_label, split_figure, split_lines


def party_section(context: ReportContext) -> Section | None:
    """None if the public facts of the parties are not known, or there is one party."""
    parties, data = context.data.parties, context.data.info
    if data is None or len(parties) < 2:
        return None
    light, dark = (split_figure(parties, data, theme) for theme in (LIGHT, DARK))
    if light is None or dark is None:
        return None
    context.run.write_bytes("figures/parties.png", render(light, "png"))
    text = "; ".join(" ".join(line.split()) for line in split_lines(parties, data))
    alt = f"Records of each party by class. {text}"
    picture = Picture(alt, render(light, "svg"), render(dark, "svg"))
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
