"""A picture of the split: how many records of which class each party holds, as text and figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.report.figures import LIGHT, Theme, grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SHOWN = 24  # parties in a picture
MAX_NAMED = 6  # classes that a line names
WIDTH = 30  # characters of the longest bar
SHADES = "█▓▒░"
HATCHES = ("", "///", "...")  # of the bars whose colour is used again
NARROW_LEGEND = 3  # classes side by side


def party_label(party: PartyInfo) -> str:
    """A party by its number and, where the data name it, its name."""
    return f"{party.party} {party.name}".rstrip()


def split_lines(parties: Sequence[PartyInfo], data: DatasetInfo) -> list[str]:
    """One line per party: a bar whose length is its number of records and whose shades are its
    classes, then the counts.

    >>> info = DatasetInfo("a", (1, 2, 2), 2, (0.5,), (0.5,), class_names=("ill", "well"))
    >>> for line in split_lines([PartyInfo(0, 4, {0: 1, 1: 3}), PartyInfo(1, 2, {0: 2})], info):
    ...     print(line[:46].rstrip())
    party 0  ████████▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓  4:
    party 1  ███████████████                 2:
    """
    shown = parties[:MAX_SHOWN]
    most = max((party.records for party in parties), default=0) or 1
    labels = [f"party {party_label(party)}" for party in shown]
    column = max((len(label) for label in labels), default=0)
    digits = max((len(f"{party.records:,}") for party in shown), default=1)
    lines = [
        f"{label:<{column}}  {_bar(party, most):<{WIDTH}}  {party.records:>{digits},}: "
        f"{_classes(party, data)}"
        for label, party in zip(labels, shown, strict=True)
    ]
    if rest := parties[MAX_SHOWN:]:
        counts = [party.records for party in rest]
        lines.append(f"{len(rest):,} more parties with {min(counts):,} to {max(counts):,} records")
    return lines


def _bar(party: PartyInfo, most: int) -> str:
    """A bar of which each class has its share, with shades in turn."""
    bar, done = "", 0
    for position, label in enumerate(sorted(party.class_counts)):
        done += party.class_counts[label]
        length = round(WIDTH * done / most) - len(bar)
        bar += SHADES[position % len(SHADES)] * length
    return bar or SHADES[0] * bool(party.records)


def _classes(party: PartyInfo, data: DatasetInfo) -> str:
    counts = sorted(party.class_counts.items())
    named = [f"{data.class_text(label)} {count:,}" for label, count in counts[:MAX_NAMED]]
    more = len(counts) - MAX_NAMED
    return ", ".join([*named, *([f"{more} more classes"] if more > 0 else [])])


def split_figure(
    parties: Sequence[PartyInfo],
    data: DatasetInfo,
    theme: Theme = LIGHT,
    *,
    narrow: bool = False,
) -> Figure | None:
    """A horizontal bar per party, stacked by class. None if there are no records.

    `narrow` puts the legend below the bars instead of beside them."""
    shown = parties[:MAX_SHOWN]
    classes = sorted({label for party in shown for label in party.class_counts})
    if not classes:
        return None
    below = 0.2 * math.ceil(len(classes) / NARROW_LEGEND) if narrow else 0.0
    size = (3.6 if narrow else 7.2, 0.6 + 0.3 * len(shown) + below)
    figure, (panel,) = grid(1, 1, size, theme)
    left = [0] * len(shown)
    for position, label in enumerate(classes):
        counts = [party.class_counts.get(label, 0) for party in shown]
        panel.barh(
            range(len(shown)),
            counts,
            left=left,
            height=0.72,
            color=theme.methods[position % len(theme.methods)],
            hatch=HATCHES[position // len(theme.methods) % len(HATCHES)],
            edgecolor=theme.text,
            linewidth=0.4,
            label=data.class_text(label).replace("$", r"\$").removeprefix("_") or " ",
        )
        left = [done + count for done, count in zip(left, counts, strict=True)]
    panel.set_yticks(range(len(shown)), [party_label(party).replace("$", r"\$") for party in shown])
    panel.invert_yaxis()
    panel.set_ylabel("party")
    panel.set_xlabel("training records")
    style = {"frameon": False, "labelcolor": theme.text, "fontsize": 8}
    if narrow:
        figure.legend(loc="outside lower center", ncols=NARROW_LEGEND, **style)
    else:
        panel.legend(loc="center left", bbox_to_anchor=(1, 0.5), **style)
    return figure
