"""The observers of a statement, and the event that counts for each."""

from __future__ import annotations

import pytest

from fedsynth.core.enums import ViewKind
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, View
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import disclosed, gaussian, repeated
from fedsynth.privacy.certificate.views import event_of, observed, read_view
from fedsynth.privacy.secagg.distributed_noise import weakened

TOTAL = repeated(gaussian(4.0), 3)
SUM, COLLUDING = View.of_sum(3), View(ViewKind.COLLUDING, colluding=1)


def test_the_views_of_a_plan_are_written_and_read() -> None:
    views = [SERVER_VIEW, SUM, COLLUDING, PUBLIC_VIEW]
    shown = observed([*views, View(ViewKind.COMPARISON, label="joint order")], shares=3)
    assert [read_view(fields) for fields in shown] == views
    assert observed([], shares=1) == observed([SERVER_VIEW], shares=1)


@pytest.mark.parametrize(
    ("view", "charged_for", "expected"),
    [
        (SERVER_VIEW, SERVER_VIEW, TOTAL),
        (PUBLIC_VIEW, SERVER_VIEW, TOTAL),
        (SUM, SUM, TOTAL),
        (COLLUDING, SUM, weakened(TOTAL, 3, 1)),
        (PUBLIC_VIEW, PUBLIC_VIEW, TOTAL),
        (SERVER_VIEW, PUBLIC_VIEW, disclosed()),  # it adds the noise itself
        (SERVER_VIEW, SUM, disclosed()),  # one share of the noise alone
        (SUM, PUBLIC_VIEW, disclosed()),
        (COLLUDING, PUBLIC_VIEW, disclosed()),
        (SUM, View.of_sum(2), disclosed()),
    ],
)
def test_who_sees_more_than_was_charged_for_has_no_guarantee(
    view: View, charged_for: View, expected
) -> None:
    found = event_of(view, 3, [charged_for.description], TOTAL)
    assert epsilon(found, 1e-5) == epsilon(expected, 1e-5)


def test_a_disclosure_stays_one_for_every_view() -> None:
    for view in (SERVER_VIEW, SUM, COLLUDING, PUBLIC_VIEW):
        assert event_of(view, 3, [SERVER_VIEW.description], disclosed()) == disclosed()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "friend"},
        {"kind": "comparison"},
        {"shares": 0},
        {"shares": True},
        {"colluding": 9},
        {"observer": "nobody"},
        {"sees": "nothing"},
        {"more": 1},
    ],
)
def test_altered_words_on_an_observer_are_refused(change: dict[str, object]) -> None:
    (fields,) = observed([SUM], shares=3)
    with pytest.raises(ValueError, match=r"."):
        read_view({**fields, **change})
