"""Texts of numbers and tables."""

from __future__ import annotations

import math

import pytest

from fedsynth.core.text import bytes_text, epsilon_text, markdown_table


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(None, "–"), (math.nan, "–"), (math.inf, "∞"), (10.0, "10"), (0.123456, "0.1235")],
)
def test_epsilons(epsilon, text):
    assert epsilon_text(epsilon) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999_999, "1 MB"), (1234, "1.23 kB"), (5e15, "5e+03 TB")],
)
def test_numbers_of_bytes(count, text):
    assert bytes_text(count) == text


def test_a_markdown_table_escapes_bars():
    assert markdown_table(["a", "b"], [["1|2", "3"]]) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |"
