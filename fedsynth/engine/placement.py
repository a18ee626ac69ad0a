"""The places of parties: the disk that holds the state of each party of a job.

Nodes of a cluster may have disks of their own. A party's ledger, keys and unfinished work lie on
one of them, and the party answers from there only: on another disk its ledger would begin anew, and
what it spent would be forgotten. The places are on the driver's disk before a request is sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from fedsynth.core.errors import UserError
from fedsynth.storage.files import write_file

PARTY_FILE = "party.yaml"
PLACEMENT = "placement.json"  # of the parties whose state is not on the driver's disk


class Place(NamedTuple):
    """A disk, and the name of a node that sees it."""

    disk: str
    node: str


class PartiesUnreachable(UserError):
    """Parties whose state lies on a disk that no worker sees."""

    def __init__(self, text: str, parties: Iterable[int]) -> None:
        super().__init__(text)
        self.parties = tuple(parties)


class Placement:
    """The places of the parties of one job; several threads may use it."""

    def __init__(self, policies: str, here: Place) -> None:
        """Read the places of a job.

        Args:
            policies: The folder of the job's parties, on the driver's disk.
            here: The driver's own disk.
        """
        self._folder, self._here = Path(policies), here
        self._turn = threading.RLock()
        self._places: dict[int, Place] = {}
        path = self._folder / PLACEMENT
        if policies and path.is_file():
            stored = json.loads(path.read_text(encoding="utf-8"))
            self._places = {int(party): Place(*place) for party, place in stored.items()}

    def of(self, party: int) -> Place | None:
        """The place of a party's state; None: it has none yet."""
        with self._turn:
            if party not in self._places and _has_state(self._folder / f"party-{party}"):
                self._places[party] = self._here
            return self._places.get(party)

    def assign(self, places: Mapping[int, Place]) -> None:
        """Remember the places of parties that have none yet; those elsewhere durably."""
        with self._turn:
            self._places.update(places)
            if any(place.disk != self._here.disk for place in places.values()):
                stored = {str(party): place for party, place in self.elsewhere().items()}
                write_file(self._folder / PLACEMENT, json.dumps(stored).encode())

    def elsewhere(self) -> dict[int, Place]:
        """The parties whose state lies on another disk than the driver's."""
        with self._turn:
            return {p: place for p, place in self._places.items() if place.disk != self._here.disk}

    def unreachable(self, parties: Iterable[int]) -> PartiesUnreachable:
        """The error that names parties whose disk no worker sees."""
        parties = sorted(parties)
        nodes = sorted({(self.of(party) or self._here).node for party in parties})
        one = len(parties) == 1
        numbers = ", ".join(map(str, parties[:20])) + (" and others" if len(parties) > 20 else "")
        return PartiesUnreachable(
            f"{'party' if one else 'parties'} {numbers}: {'its' if one else 'their'} ledger"
            f"{'' if one else 's'} and keys lie on the disk of {' and '.join(nodes)}, which no "
            f"worker of this run sees. {'It answers' if one else 'They answer'} from there only, "
            "because elsewhere the spending so far would be forgotten. Bring the node back with "
            "its disk and continue with --resume; if the disk is lost, start a new run.",
            parties,
        )


def refuse_elsewhere(policies: str) -> None:
    """Refuse a job with parties on other disks, for an engine that reaches the driver's only.

    Raises:
        PartiesUnreachable: There are some.
    """
    placement = Placement(policies, Place("", ""))
    if parties := placement.elsewhere():
        raise placement.unreachable(parties)


def _has_state(folder: Path) -> bool:
    """True if a party's folder on this disk holds more than its policy."""
    return folder.is_dir() and any(file.name != PARTY_FILE for file in folder.iterdir())
