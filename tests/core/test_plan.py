"""The public plan of a stage: its views and its lookup by party."""

from __future__ import annotations

import pytest

from fedsynth.core.enums import ViewKind
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, View


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (SERVER_VIEW, "server"),
        (PUBLIC_VIEW, "public"),
        (View.of_sum(3), "server that sees sums of 3 or more shares"),
        (View(ViewKind.COLLUDING, colluding=1), "server with 1 colluding party"),
        (View(ViewKind.COLLUDING, colluding=2), "server with 2 colluding parties"),
        (View(ViewKind.COMPARISON, label="joint order"), "joint order"),
    ],
)
def test_the_stored_text_of_a_view(view: View, text: str) -> None:
    """Ledgers on disk hold these texts."""
    assert view.text == text


def test_a_sum_of_one_share_is_seen_like_a_release() -> None:
    assert View.of_sum(1) == SERVER_VIEW


def test_the_shown_text_of_a_view_calls_the_server_by_its_name() -> None:
    assert SERVER_VIEW.description == "server"
    assert View.of_sum(3).description == "server that sees sums of 3 or more shares"
    assert View(ViewKind.COLLUDING, colluding=2).description == "server with 2 colluding parties"
    assert PUBLIC_VIEW.description == "public"
