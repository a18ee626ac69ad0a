"""Section of inverted images: the estimate from released images, next to the ground truth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd
import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.core.text import MISSING, epsilon_text
from fedsynth.evaluation.inversion_detector import (
    INVERTED,
    MIN_DECIDED,
    UNDECIDED,
    UPRIGHT,
    verdicts,
)
from fedsynth.report.classifier_tables import last_stage
from fedsynth.report.elements import Column, Picture, ReportContext, Row, Section, Table
from fedsynth.storage.pictures import COLUMNS, contact_sheet, png
from fedsynth.storage.releases import release_name

SHARE = "inverted_share"
TOLERANCE = 0.1  # shares this close to one half are called "about half"
_COLUMNS = (
    Column("Method", "label"),
    Column("Budget ε"),
    Column("Decided", title="images with a clearly bright or clearly dark edge"),
    Column("Inverted", title="share of the decided images"),
    Column("By reference runs", title="share of users, from edge brightness in reference runs"),
    Column("Verdict", "text", "the conclusion that the images support"),
    Column("Users, estimated", title="by reference runs, if there are any"),
    Column("Users, actual", title="known only in this simulation"),
)
_VERDICTS = {INVERTED: "inverted", UPRIGHT: "upright", UNDECIDED: "undecided"}


@dataclass(frozen=True)
class ExampleSheet:
    """Released images, one row per verdict."""

    caption: str
    picture: Picture


def inversion_section(context: ReportContext) -> Section | None:
    """None if no user's images could be inverted in this run."""
    table = last_stage(context.metrics)
    if SHARE not in table:
        return None
    rows = table[table[SHARE].notna()]
    lines = [_row(str(method), float(epsilon), row) for (epsilon, method), row in rows.iterrows()]
    sheets = [_sheet(context, str(method), float(epsilon)) for epsilon, method in rows.index]
    content = {
        "table": Table("Estimate from the released images, next to the truth", _COLUMNS, lines),
        "sheets": [sheet for sheet in sheets if sheet is not None],
    }
    return Section("inversion", "Are users' images inverted?", content, "Inverted images")


def _row(method: str, epsilon: float, row: pd.Series) -> Row:
    decided, users = row["inverted_told"], row.get("affected_users", math.nan)
    by_reference, reliable = row.get("inverted_share_rehearsed", math.nan), decided >= MIN_DECIDED
    number, actual = (
        row.get(f"{name}_true", math.nan) for name in ("users_heard", "affected_users")
    )
    cells = (
        method,
        epsilon_text(epsilon),
        f"{decided:.0%}",
        f"{row[SHARE]:.0%}" if reliable else MISSING,
        MISSING if math.isnan(by_reference) else f"{by_reference:.0%}",
        _verdict(row[SHARE] if math.isnan(by_reference) else by_reference, reliable),
        MISSING if math.isnan(users) else f"{users:.0f} of {number:.0f}",
        "not published"
        if math.isnan(number)
        else f"{actual:.0f} of {number:.0f} ({row['affected_share_true']:.0%})",
    )
    return Row(cells, reference=math.isinf(epsilon))


def _verdict(share: float, reliable: bool) -> str:
    if abs(share - 0.5) <= TOLERANCE:
        return "about half inverted" if reliable else "about half, or undecided"
    return f"{'more' if share > 0.5 else 'fewer'} than half inverted"


def _sheet(context: ReportContext, method: str, epsilon: float) -> ExampleSheet | None:
    """Up to ten images per verdict, of the first seed; None if the images are not stored."""
    run, metrics = context.run, context.metrics
    job = metrics[(metrics["method"] == method) & (metrics["epsilon"] == epsilon)]
    name, stage = release_name(method, epsilon, int(job["seed"].min())), int(job["stage"].max())
    if not run.releases.exists(name, stage):
        return None
    released = run.releases.load(name, stage)
    if not isinstance(released, SyntheticSet):
        return None
    found = verdicts(released)
    generator = torch_generator("debugging", name)
    chosen = torch.cat(
        [
            (indices := torch.nonzero(found == verdict).flatten())[
                torch.randperm(len(indices), generator=generator)[:COLUMNS]
            ]
            for verdict in _VERDICTS
        ]
    )
    picture = png(contact_sheet(SyntheticSet(released.images[chosen], found[chosen])))
    context.write(f"figures/inverted-{name}.png", picture)
    counts = {verdict: int((found == verdict).sum()) for verdict in _VERDICTS}
    totals = ", ".join(f"{counts[verdict]:,} {word}" for verdict, word in _VERDICTS.items())
    order = ", ".join(word for verdict, word in sorted(_VERDICTS.items()) if counts[verdict])
    caption = f"{method}, ε = {epsilon_text(epsilon)}: {totals}"
    return ExampleSheet(
        f"{caption}. Rows from the top: {order}.",
        Picture(f"Up to ten images per verdict. {caption}", picture, media_type="image/png"),
    )
