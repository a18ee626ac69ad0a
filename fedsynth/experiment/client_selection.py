"""Which users take part: all of them, or those for whom a deployed model does badly, or well.

The story is that of a developer who may not look at users' data. Their model serves some users
badly; a fault of an app may be why (`flip`). So they ask those users, and only those, to train a
generator together, and look at what it draws.

* The developer's model is trained on the records of volunteers: a public random share of the users,
  who are no parties, are not protected, and whose app is in order. Half of them teach it; the other
  half say what accuracy is low (or high): that of a quarter of them, unless a number is given. (The
  published numbers are just that: .882 and .939 cut off a quarter of the users whose app works.)
* Every other user is sent the model and that accuracy, tests it at home, and decides at home.
* `joins=public`: who decides to take part is seen. So that decision, one bit of every user asked,
  is no secret, and no epsilon covers it. That is what the paper does, without a word of it.
* `joins=hidden`: every user asked is a party; one who decides against answers with nothing but
  noise. The decision is then part of what the sanitiser hides, at no further cost: whatever a
  user's answer, it is one of the clipped vectors that the mechanism makes alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build, setting

ALL, LOW, HIGH, VOLUNTEERS = "all", "low", "high", "volunteers"
PUBLIC, HIDDEN = "public", "hidden"
QUARTER = 0.25


@dataclass(frozen=True)
class ClientSelectionConfig:
    """The options of partition=users."""

    flip: float = setting(
        0.0, "chance of a user to have ink and paper exchanged", at_least=0, at_most=1
    )
    chosen: str = setting(
        ALL,
        "who takes part: all, users for whom the deployed model's accuracy is low or high, or the "
        "volunteers (again and again where there are fewer than parties)",
        choices=(ALL, LOW, HIGH, VOLUNTEERS),
    )
    accuracy: float | None = setting(
        None,
        "what is low (at most) or high (at least); none: as for a quarter of the volunteers",
        at_least=0,
        at_most=1,
    )
    volunteers: float = setting(
        0.2, "share of the users who give the deployed model their records", above=0, below=1
    )
    joins: str = setting(
        PUBLIC,
        "public: who is chosen is seen; hidden: all are asked, and the others answer with noise",
        choices=(PUBLIC, HIDDEN),
    )
    rehearse: bool = setting(
        True, "volunteers have the same conversation twice, to tell how many users are flipped"
    )

    @staticmethod
    def of(options: Mapping[str, Any] | None) -> ClientSelectionConfig:
        """What the options of a world say, checked."""
        asked = build(ClientSelectionConfig, options or {}, "options")
        if not asked.chooses:
            for name in ("accuracy", "volunteers", "joins", "rehearse"):
                if name in (options or {}) and (asked.chosen, name) != (VOLUNTEERS, "volunteers"):
                    raise UserError(
                        f"options.{name}={getattr(asked, name)!r} is for options.chosen={LOW} or "
                        f"{HIGH}: with options.chosen={asked.chosen} nobody decides anything."
                    )
        return asked

    def reference_options(self, flip: float) -> dict[str, Any]:
        """Options of a world with volunteers in the place of users, all upright or all flipped."""
        return {"flip": flip, "chosen": VOLUNTEERS, "volunteers": self.volunteers}

    @property
    def chooses(self) -> bool:
        """Whether a deployed model decides who takes part."""
        return self.chosen in (LOW, HIGH)

    def split(self, users: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of users in public random order: volunteers who teach the deployed model, volunteers who
        say what accuracy is low, and those who are asked to take part."""
        count = round(self.volunteers * len(users))
        if not 2 <= count < len(users):
            raise UserError(
                f"options.volunteers={self.volunteers:g} of the {len(users)} users of {name} are "
                f"{count}: at least 2, and somebody else beside them, are needed."
            )
        return users[: count // 2], users[count // 2 : count], users[count:]

    def threshold(self, accuracies: np.ndarray) -> float:
        """The accuracy to be compared with, by what volunteers have where none is given."""
        if self.accuracy is not None:
            return self.accuracy
        share = QUARTER if self.chosen == LOW else 1 - QUARTER
        return float(np.quantile(accuracies, share))

    def takes_part(self, accuracies: np.ndarray, threshold: float) -> np.ndarray:
        """Each user's decision."""
        return accuracies <= threshold if self.chosen == LOW else accuracies >= threshold


@dataclass(frozen=True)
class SelectedClients:
    """Who came of it. Users are numbered as in the data."""

    parties: np.ndarray  # in the order of the parties
    silent: np.ndarray  # bool [parties]: who answers with noise alone
    held: np.ndarray  # held out to choose settings on
    asked: int = 0  # users who were sent the model
    willing: int = 0  # of whom so many are chosen; a run may be of the first of them only
    volunteers: int = 0
    threshold: float = 1.0


def describe_selection(asked: ClientSelectionConfig, found: SelectedClients) -> list[str]:
    """What a reader must know; nothing that only the simulation knows."""
    if asked.chosen == VOLUNTEERS:
        return [
            f"chosen={VOLUNTEERS}: the parties are {found.volunteers} volunteers, who agreed to be "
            "looked at, some of them several times over where more parties are asked for. A "
            "rehearsal: it says nothing of users."
        ]
    if not asked.chooses:
        return []
    bound = f"{'at most' if asked.chosen == LOW else 'at least'} {found.threshold:.4g}"
    number = "given" if asked.accuracy is not None else "that of a quarter of the other half"
    said = [
        f"chosen={asked.chosen}: the developer's model is a CNN trained on half of "
        f"{found.volunteers} volunteers, and takes a user whose own records it gets right in "
        f"{bound} ({number}). Volunteers are no parties: this run assumes that they agreed to be "
        "looked at and that their app is in order; nothing here protects them."
    ]
    if asked.rehearse and asked.flip:
        said.append(
            "rehearse=true: volunteers have every conversation twice more, upright and inverted, "
            "to read the release by: three times the time, which --plan does not count, and no "
            "privacy of users."
        )
    if asked.joins == HIDDEN:
        return [
            *said,
            f"joins=hidden: of {found.asked:,} users asked {len(found.parties):,} are parties, "
            "chosen or not, and those who are not chosen answer with noise alone. So the choice is "
            "protected by the same epsilon; not how long a user computes, which this simulation "
            "does not hide.",
        ]
    some = f", the first {len(found.parties):,} of them in this run"
    return [
        *said,
        f"joins=public: {found.willing:,} of {found.asked:,} users asked take part"
        f"{some if len(found.parties) < found.willing else ''}. Whether a user does depends on "
        "private records and is seen by everybody. NO EPSILON HERE COVERS THAT BIT, of those who "
        "take part or of those who do not (nor does the published one); the epsilons hold for what "
        "a user who takes part sends. options.joins=hidden covers it.",
    ]
