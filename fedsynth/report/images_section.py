"""The pictures of the report: what was released, and what is still known after each stage."""

from __future__ import annotations

import math

import pandas as pd

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.report import html
from fedsynth.report.figures import DARK, LIGHT, accuracy_matrices, images_by_method, render
from fedsynth.report.summary import epsilon_words
from fedsynth.storage.releases import contact_sheet, is_table, png
from fedsynth.storage.run_directory import RunDirectory, release_name

STAGES_SHOWN = 12  # pictures of at most so many stages a method


def images(run: RunDirectory, metrics: pd.DataFrame) -> str:
    """Every job's released images, of its first seed; writes the overview figure too."""
    shown: list[str] = []
    tables: list[str] = []
    joined: dict[tuple[str, float], SyntheticSet] = {}
    for (method, epsilon), group in sorted(
        metrics.groupby(["method", "epsilon"]), key=lambda item: (item[0][1], item[0][0])
    ):
        seed = int(group["seed"].min())
        name = release_name(method, epsilon, seed)
        stages = [int(s) for s in sorted(group["stage"].unique()) if run.has_release(name, int(s))]
        loaded = {stage: run.load_release(name, stage) for stage in stages}
        sets = {s: outcome for s, outcome in loaded.items() if isinstance(outcome, SyntheticSet)}
        if not sets:
            continue
        if any(is_table(outcome) for outcome in sets.values()):
            tables.append(f"{method}, ε = {epsilon_words(epsilon)}: releases/{name}/stage-*.csv")
            continue
        joined[(method, epsilon)] = SyntheticSet.join(list(sets.values()))
        words = f"{method}, ε = {epsilon_words(epsilon)}"
        promise = "" if math.isfinite(epsilon) else " (not private)"
        sheets = "".join(
            _sheet(words, stage, sets[stage]) for stage in sorted(sets)[-STAGES_SHOWN:]
        )
        shown.append(
            f'<h3>{html.text(words + promise)} <span class="soft">seed {seed}</span></h3>'
            f'<div class="sheets">{sheets}</div>'
        )
    figure = images_by_method(joined)
    if figure is not None:
        run.write_bytes("figures/synthetic_images.png", render(figure, "png"))
    if tables:
        return html.section(
            "images",
            "Released rows",
            html.paragraph(
                "What left the parties are rows of a table, so there are no pictures to show. "
                "They are in the run directory, as CSV in the table's own units (values outside a "
                "column's public range moved to its end) and, as they were released, as npz."
            ),
            *(html.paragraph(line) for line in tables),
        )
    if not shown:
        return ""
    return html.section(
        "images",
        "Released images",
        html.paragraph(
            "What left the parties: up to ten images a class, one row a class, clamped to the "
            "visible range. Made to train classifiers, not to be looked at."
        ),
        *shown,
    )


def _sheet(words: str, stage: int, images: SyntheticSet) -> str:
    classes = ", ".join(str(int(c)) for c in images.labels.unique())
    what = f"stage {stage}: {len(images.labels):,} images of classes {classes}"
    image = html.picture(
        f"Images released by {words}, {what}", png(contact_sheet(images, 0)), kind="image/png"
    )
    return f"<figure>{image}<figcaption>{html.text(what.capitalize())}</figcaption></figure>"


def matrices(run: RunDirectory, metrics: pd.DataFrame) -> str:
    """The accuracy matrices; writes their figure too."""
    light, dark = accuracy_matrices(metrics, LIGHT), accuracy_matrices(metrics, DARK)
    if light is None or dark is None:
        return ""
    run.write_bytes("figures/accuracy_matrices.png", render(light, "png"))
    alt = (
        "For each method and epsilon a triangle of accuracies: rows are the stages trained up to, "
        "columns the stages whose classes are tested. The numbers are in metrics.csv, "
        "metric accuracy_of_stage_j."
    )
    return html.section(
        "matrices",
        "Accuracy by stage",
        html.paragraph(
            "After training on everything released up to a stage (down), how well the classes of "
            "each stage (across) are told from all classes seen. A column that fades downwards is "
            "forgetting. Means over seeds."
        ),
        "<figure>",
        html.scrolling(html.picture(alt, render(light, "svg"), render(dark, "svg")), "wide"),
        "</figure>",
    )
