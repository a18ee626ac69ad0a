"""Section of the released images, or of the files of released table rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.text import epsilon_text
from fedsynth.report.elements import Picture, ReportContext, Section, Table
from fedsynth.report.figures import images_by_method, render
from fedsynth.report.table_samples import sample_rows
from fedsynth.storage.pictures import contact_sheet, is_table, png
from fedsynth.storage.releases import release_name

MAX_STAGES = 12  # with a picture, per method and epsilon


@dataclass(frozen=True)
class Sheet:
    """The contact sheet of one stage."""

    caption: str
    picture: Picture


@dataclass(frozen=True)
class Gallery:
    """The contact sheets of one method and epsilon."""

    heading: str
    seed: int
    sheets: list[Sheet]


def image_section(context: ReportContext) -> Section | None:
    """The releases of the first seed of every job; also writes an overview figure.

    None if no set was released.
    """
    names = context.data.info.class_names if context.data.info else ()
    galleries: list[Gallery] = []
    tables: list[str] = []
    samples: list[Table] = []
    joined: dict[tuple[str, float], SyntheticSet] = {}
    for row in context.rows:
        method, epsilon = row.method, row.epsilon
        job = context.metrics[
            (context.metrics["method"] == method) & (context.metrics["epsilon"] == epsilon)
        ]
        seed = int(job["seed"].min())
        name = release_name(method, epsilon, seed)
        sets = _released_sets(context, name, [int(stage) for stage in sorted(set(job["stage"]))])
        if not sets:
            continue
        title = f"{method}, ε = {epsilon_text(epsilon)}"
        if any(is_table(released) for released in sets.values()):
            tables.append(f"{title}: releases/{name}/stage-*.csv")
            if context.data.info is not None and context.data.info.columns:
                caption = f"{title}, seed {seed}: the first rows of each class, in turn"
                released = SyntheticSet.join(list(sets.values()))
                samples.append(sample_rows(context.data.info, released, caption))
            continue
        joined[method, epsilon] = SyntheticSet.join(list(sets.values()))
        heading = title if math.isfinite(epsilon) else f"{title} (not private)"
        sheets = [_sheet(title, stage, sets[stage], names) for stage in sorted(sets)[-MAX_STAGES:]]
        galleries.append(Gallery(heading, seed, sheets))
    if (figure := images_by_method(joined, names=names)) is not None:
        for kind in context.figure_kinds:
            context.write(f"figures/synthetic_images.{kind}", render(figure, kind))
    if not (tables or galleries):
        return None
    heading = "Released rows" if tables else "Released images"
    return Section(
        "images", heading, {"galleries": galleries, "tables": tables, "samples": samples}
    )


def _released_sets(context: ReportContext, name: str, stages: list[int]) -> dict[int, SyntheticSet]:
    """The released sets by stage, without released models."""
    run = context.run
    outcomes = {s: run.releases.load(name, s) for s in stages if run.releases.exists(name, s)}
    return {s: outcome for s, outcome in outcomes.items() if isinstance(outcome, SyntheticSet)}


def _sheet(title: str, stage: int, released: SyntheticSet, names: tuple[str, ...]) -> Sheet:
    found = [int(c) for c in released.labels.unique()]
    classes = ", ".join(names[c] if names else str(c) for c in found)
    summary = f"stage {stage}: {len(released.labels):,} images of classes {classes}"
    picture = Picture(
        f"Images released by {title}, {summary}",
        png(contact_sheet(released, 0)),
        media_type="image/png",
    )
    return Sheet(summary.capitalize(), picture)
