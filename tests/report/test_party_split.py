"""Pictures of the split: bars as long as the counts, with the names of parties and classes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedsynth.core.types import DatasetInfo, PartyInfo
from fedsynth.report.party_split import MAX_SHOWN, WIDTH, split_figure, split_lines

INFO = DatasetInfo("x", (1, 4, 4), 3, (0.5,), (0.5,), class_names=("ill", "well", "dead"))


@given(st.lists(st.lists(st.integers(0, 500), min_size=3, max_size=3), min_size=1, max_size=30))
def test_bars_are_as_long_as_the_counts(counts: list[list[int]]) -> None:
    parties = [
        PartyInfo(i, sum(row), {c: n for c, n in enumerate(row) if n}, f"p{i}")
        for i, row in enumerate(counts)
    ]
    lines = split_lines(parties, INFO)
    most = max(sum(row) for row in counts) or 1
    for row, line in zip(counts, lines[:MAX_SHOWN], strict=False):
        drawn = sum(line.count(shade) for shade in "█▓▒░")
        assert abs(drawn - WIDTH * sum(row) / most) <= 1
        assert [f"{name} {n}" in line for name, n in zip(INFO.class_names, row, strict=True)] == [
            n > 0 for n in row
        ]
    assert len(lines) == min(len(counts), MAX_SHOWN) + (len(counts) > MAX_SHOWN)


def test_the_figure_has_a_bar_for_each_party_and_class() -> None:
    parties = [PartyInfo(0, 5, {0: 2, 1: 3}, "city"), PartyInfo(1, 4, {2: 4}, "_lake$")]
    figure = split_figure(parties, INFO)
    assert figure is not None
    (panel,) = figure.axes
    widths = [[bar.get_width() for bar in group] for group in panel.containers]
    assert widths == [[2, 0], [3, 0], [0, 4]]
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["ill", "well", "dead"]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["0 city", r"1 _lake\$"]
    assert split_figure([], INFO) is None
