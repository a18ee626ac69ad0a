"""What a developer who may not look at users' data sees of a fault, beside what is true."""

from __future__ import annotations

import math

import pandas as pd
import torch

from fedsynth.core.outcomes import SyntheticSet
from fedsynth.core.randomness import torch_generator
from fedsynth.evaluation.inversion_detector import ENOUGH, INVERTED, UNTOLD, UPRIGHT, verdicts
from fedsynth.report import html
from fedsynth.report.classifier_tables import last_stage
from fedsynth.report.summary import MISSING, epsilon_words
from fedsynth.storage.releases import COLUMNS, contact_sheet, png
from fedsynth.storage.run_directory import RunDirectory, release_name

SHARE = "inverted_share"
DOUBT = 0.1  # shares that near to one half are called so
_COLUMNS = (
    html.Column("Method", number=False),
    html.Column("Budget ε"),
    html.Column("Can be told", title="images whose edge is clearly bright or clearly dark"),
    html.Column("Look inverted", title="of those that can be told"),
    html.Column("By rehearsal", title="share of users, from how bright edges became in rehearsals"),
    html.Column("Verdict", number=False, title="what the images can be trusted to say"),
    html.Column("Users, estimated", title="by rehearsal where there is one"),
    html.Column("Users, in truth", title="known to this simulation alone"),
)
_WORDS = {INVERTED: "look inverted", UPRIGHT: "look upright", UNTOLD: "cannot be told"}


def section(run: RunDirectory, metrics: pd.DataFrame) -> str:
    """The section; none where no user's images could be inverted."""
    wide = last_stage(metrics)
    if SHARE not in wide:
        return ""
    rows = wide[wide[SHARE].notna()]
    return html.section(
        "debugging",
        "Are users' images inverted?",
        html.paragraph(
            "A developer sees the released images and nothing else. Ink is bright and paper dark "
            "where all is well, so an image with a bright edge is inverted. It is read off the "
            "released images, so it costs no privacy, and it is no better than the generator. The "
            "last column is known to this simulation alone. Means over seeds, after the last stage."
        ),
        html.paragraph(
            "Where every critic knows one user only, each pulls all images towards what its user "
            "has: the generator goes with the majority, and the share of inverted images says "
            '"fewer" or "more than half" and no more. How many users it is shows in how far it has '
            "gone: twice the developer rehearses the same conversation with volunteers, upright "
            "and inverted, and reads the edges of the release as a mixture of what came of these. "
            "Where some users are silent in secret, that reading is drawn towards one half."
        ),
        html.table(
            "Estimated from the released images, beside the truth",
            _COLUMNS,
            [_row(str(name), float(eps), row) for (eps, name), row in rows.iterrows()],
        ),
        *(_sheet(run, metrics, str(name), float(eps)) for eps, name in rows.index),
    )


def _row(name: str, epsilon: float, row: pd.Series) -> tuple[str, tuple[str, ...]]:
    told, users = row["inverted_told"], row.get("affected_users", math.nan)
    rehearsed, sees = row.get("inverted_share_rehearsed", math.nan), told >= ENOUGH
    heard, truth = row["users_heard_true"], row["affected_users_true"]
    guess = MISSING if math.isnan(users) else f"{users:.0f} of {heard:.0f}"
    cells = (
        name,
        epsilon_words(epsilon),
        f"{told:.0%}",
        f"{row[SHARE]:.0%}" if sees else MISSING,
        MISSING if math.isnan(rehearsed) else f"{rehearsed:.0%}",
        _verdict(row[SHARE] if math.isnan(rehearsed) else rehearsed, sees),
        guess,
        f"{truth:.0f} of {heard:.0f} ({row['affected_share_true']:.0%})",
    )
    return "" if math.isfinite(epsilon) else "reference", cells


def _verdict(share: float, sees: bool) -> str:
    if abs(share - 0.5) <= DOUBT:
        return "about half inverted" if sees else "about half, or cannot tell"
    return f"{'more' if share > 0.5 else 'fewer'} than half inverted"


def _sheet(run: RunDirectory, metrics: pd.DataFrame, method: str, epsilon: float) -> str:
    """Ten images of each verdict, of the first seed; none where images are not kept."""
    mine = metrics[(metrics["method"] == method) & (metrics["epsilon"] == epsilon)]
    seed, stage = int(mine["seed"].min()), int(mine["stage"].max())
    name = release_name(method, epsilon, seed)
    if not run.has_release(name, stage):
        return ""
    released = run.load_release(name, stage)
    if not isinstance(released, SyntheticSet):
        return ""
    found = verdicts(released)
    draw = torch_generator("debugging", name)
    chosen = torch.cat(
        [
            (where := torch.nonzero(found == verdict).flatten())[
                torch.randperm(len(where), generator=draw)[:COLUMNS]
            ]
            for verdict in _WORDS
        ]
    )
    shown = SyntheticSet(released.images[chosen], found[chosen])
    counts = [f"{int((found == verdict).sum()):,} {words}" for verdict, words in _WORDS.items()]
    caption = f"{method}, ε = {epsilon_words(epsilon)}: {', '.join(counts)}"
    picture = png(contact_sheet(shown))
    run.write_bytes(f"figures/inverted-{name}.png", picture)
    order = ", ".join(
        words for verdict, words in sorted(_WORDS.items()) if bool((found == verdict).any())
    )
    image = html.picture(f"Ten images of each verdict. {caption}", picture, kind="image/png")
    return (
        f"<figure>{image}"
        f"<figcaption>{html.text(caption)}. Rows from the top: {html.text(order)}.</figcaption>"
        "</figure>"
    )
