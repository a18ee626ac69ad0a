"""Views of a party's spending: what each observer sees, and the event that counts for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dp_accounting import DpEvent, NonPrivateDpEvent

from fedsynth.core.enums import ViewKind
from fedsynth.core.plan import PUBLIC_VIEW, SERVER_VIEW, View
from fedsynth.privacy.accounting.events import disclosed, flatten, from_text
from fedsynth.privacy.secagg.distributed_noise import weakened

_SEES = {
    ViewKind.SERVER: "every message of this party, and all that is computed from them",
    ViewKind.SUM: "sums of the messages of {shares} or more parties, and no single message",
    ViewKind.COLLUDING: (
        "sums of the messages of {shares} or more parties, and the noise that {colluding} of the "
        "other parties added to them"
    ),
    ViewKind.PUBLIC: "the published result, and no message of a party",
}


def observed(views: Sequence[View], shares: int) -> list[dict[str, Any]]:
    """The observers of a plan as they stand in a statement; counts without an observer are left
    out."""
    shown = []
    for view in views or [SERVER_VIEW]:
        if view.kind != ViewKind.COMPARISON:
            parts = view.shares if view.kind == ViewKind.SUM else shares
            fields = {"shares": parts, "colluding": view.colluding}
            sees = _SEES[view.kind].format(**fields)
            shown.append({"observer": view.description, "kind": view.kind.value, **fields})
            shown[-1]["sees"] = sees
    return shown


def read_view(fields: Mapping[str, Any]) -> View:
    """The view of one observer in a statement.

    Raises:
        ValueError: The fields are not those of an observer, or the words are not those of the view.
    """
    if set(fields) != {"observer", "kind", "shares", "colluding", "sees"}:
        raise ValueError("an observer has a kind, shares, colluding parties and what it sees")
    kind = ViewKind(fields["kind"])
    shares, colluding = fields["shares"], fields["colluding"]
    if type(shares) is not int or type(colluding) is not int:
        raise ValueError("shares and colluding parties are whole numbers")
    if kind == ViewKind.COMPARISON or shares < 1 or not 0 <= colluding < max(shares, 2):
        raise ValueError(f"there is no observer {fields['observer']!r}")
    view = View(kind, shares=shares if kind == ViewKind.SUM else 1, colluding=colluding)
    sees = _SEES[kind].format(shares=shares, colluding=colluding)
    if fields["observer"] != view.description or fields["sees"] != sees:
        raise ValueError(f"the words on the observer {fields['observer']!r} are not those of it")
    return view


def event_of(view: View, shares: int, charged_for: Sequence[str], total: DpEvent) -> DpEvent:
    """The event that counts for an observer.

    Args:
        view: The observer.
        shares: The number of shares of which the noise of a sum consists.
        charged_for: The views of the ledger's entries, as descriptions.
        total: The composition of all entries.

    Returns:
        The total for an observer who sees no more than the entries were charged for; the total with
        the noise of colluding parties taken away; and a disclosure for one who sees more.
    """
    if not charged_for or any(isinstance(e, NonPrivateDpEvent) for e in _bases(total)):
        return total
    if view == PUBLIC_VIEW:
        return total
    if PUBLIC_VIEW.description in charged_for:
        return disclosed()
    if view.kind == ViewKind.SERVER:
        seen = all(text == SERVER_VIEW.description for text in charged_for)
        return total if seen else disclosed()
    needed = View.of_sum(shares).description
    if any(text not in (needed, SERVER_VIEW.description) for text in charged_for):
        return disclosed()
    return total if view.kind == ViewKind.SUM else weakened(total, shares, view.colluding)


def _bases(event: DpEvent) -> list[DpEvent]:
    """The base events of a spending, each once."""
    return [from_text(text) for text in flatten(event)]
