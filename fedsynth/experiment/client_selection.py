"""Selection of users: all, or those for whom a deployed model has a low or a high accuracy.

The setting: a developer may not see users' data. The deployed model works badly for some users;
a fault of an app may be the reason (`flip`). So only those users train a generator together, and
the developer examines its images.

* The deployed model is trained on the records of volunteers: a public random share of the users
  that are no parties, are not protected, and whose app works. Half of them train it; the accuracies
  of the other half give the threshold: their lower (or upper) quartile, unless a number is given.
  (The published numbers are such quartiles: .882 and .939 of the users whose app works.)
* Every other user receives the model and the threshold, tests it on the device, and decides there.
* `joins=public`: the decision to take part is visible. It is one bit of every user asked, and no
  epsilon covers it. The paper does this without stating it.
* `joins=hidden`: every user asked is a party; one that is not selected answers with noise alone.
  The decision is then covered by the mechanism at no further cost: any answer is one of the clipped
  vectors whose differences the noise hides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from fedsynth.core.errors import UserError
from fedsynth.core.settings import build, plain, setting

VOLUNTEER_QUANTILE = 0.25  # of accuracies, below which one is low


class Chosen(StrEnum):
    """The users that take part."""

    ALL = "all"
    LOW = "low"  # those for whom the deployed model's accuracy is low
    HIGH = "high"
    VOLUNTEERS = "volunteers"


class Joins(StrEnum):
    """Whether others see who takes part."""

    PUBLIC = "public"
    HIDDEN = "hidden"


@dataclass(frozen=True)
class ClientSelectionConfig:
    """The options of partition=users."""

    flip: float = setting(
        0.0, "chance per user that ink and paper are exchanged", at_least=0, at_most=1
    )
    chosen: Chosen = setting(
        Chosen.ALL,
        "users that take part: all, those for whom the deployed model's accuracy is low or high, "
        "or the volunteers (repeatedly if there are fewer than parties)",
    )
    accuracy: float | None = setting(
        None,
        "threshold of a low (at most) or high (at least) accuracy; none: a quartile of volunteers",
        at_least=0,
        at_most=1,
    )
    volunteers: float = setting(
        0.2, "share of the users whose records train and test the deployed model", above=0, below=1
    )
    joins: Joins = setting(
        Joins.PUBLIC,
        "public: the selection is visible; hidden: all are asked, the others answer with noise",
    )
    rehearse: bool = setting(
        True, "rehearse the job twice with volunteers, to estimate how many users are inverted"
    )

    @staticmethod
    def of(options: Mapping[str, Any] | None) -> ClientSelectionConfig:
        """Read and check the options of a scenario."""
        asked = build(ClientSelectionConfig, options or {}, "options")
        if not asked.chooses:
            for name in ("accuracy", "volunteers", "joins", "rehearse"):
                if name in (options or {}) and (asked.chosen, name) != (
                    Chosen.VOLUNTEERS,
                    "volunteers",
                ):
                    raise UserError(
                        f"options.{name}={plain(getattr(asked, name))!r} is for "
                        f"options.chosen={Chosen.LOW} or {Chosen.HIGH}: with "
                        f"options.chosen={asked.chosen} no user decides."
                    )
        return asked

    def reference_options(self, flip: float) -> dict[str, Any]:
        """Options of a scenario with volunteers in place of users, all upright or all inverted."""
        return {"flip": flip, "chosen": Chosen.VOLUNTEERS, "volunteers": self.volunteers}

    @property
    def chooses(self) -> bool:
        """True if a deployed model decides about participation."""
        return self.chosen in (Chosen.LOW, Chosen.HIGH)

    def split(self, users: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split users in public random order into three groups.

        Returns:
            Volunteers that train the deployed model, volunteers that give the threshold, and the
            users that are asked to take part.
        """
        count = round(self.volunteers * len(users))
        if not 2 <= count < len(users):
            raise UserError(
                f"options.volunteers={self.volunteers:g} of the {len(users)} users of {name} are "
                f"{count}: at least 2, and one other user, are needed."
            )
        return users[: count // 2], users[count // 2 : count], users[count:]

    def threshold(self, accuracies: np.ndarray) -> float:
        """The threshold: as given, or the quartile of the volunteers' accuracies."""
        if self.accuracy is not None:
            return self.accuracy
        share = VOLUNTEER_QUANTILE if self.chosen == Chosen.LOW else 1 - VOLUNTEER_QUANTILE
        return float(np.quantile(accuracies, share))

    def takes_part(self, accuracies: np.ndarray, threshold: float) -> np.ndarray:
        """The decision of each user."""
        return accuracies <= threshold if self.chosen == Chosen.LOW else accuracies >= threshold


@dataclass(frozen=True)
class SelectedClients:
    """The result of a selection. Users are numbered as in the data."""

    parties: np.ndarray  # in the order of the parties
    silent: np.ndarray  # bool [parties]: those that answer with noise alone
    held: np.ndarray  # held out for choosing settings
    asked: int = 0  # number of users that received the model
    willing: int = 0  # number of those selected; a run may use the first of them only
    volunteers: int = 0
    threshold: float = 1.0


def describe_selection(asked: ClientSelectionConfig, found: SelectedClients) -> list[str]:
    """Remarks for the reader, without facts that only the simulation has."""
    if asked.chosen == Chosen.VOLUNTEERS:
        return [
            f"chosen={asked.chosen}: the parties are {found.volunteers} volunteers, who agreed to "
            "disclose their records; some are used repeatedly if there are more parties. This is a "
            "rehearsal: its results are not about users."
        ]
    if not asked.chooses:
        return []
    bound = f"{'at most' if asked.chosen == Chosen.LOW else 'at least'} {found.threshold:.4g}"
    number = "given" if asked.accuracy is not None else "that of a quarter of the other half"
    texts = [
        f"chosen={asked.chosen}: the deployed model is a CNN trained on half of "
        f"{found.volunteers} volunteers; a user is selected if its accuracy on the user's records "
        f"is {bound} ({number}). Volunteers are no parties: this run assumes that they agreed to "
        "disclose their records and that their app works; nothing here protects them."
    ]
    if asked.rehearse and asked.flip:
        texts.append(
            "rehearse=true: every job is run twice more with volunteers, upright and inverted, to "
            "calibrate the estimate: three times the time, which --plan does not count, at no cost "
            "in privacy of users."
        )
    if asked.joins == Joins.HIDDEN:
        return [
            *texts,
            f"joins=hidden: of {found.asked:,} users asked {len(found.parties):,} are parties, "
            "selected or not, and those not selected answer with noise alone. So the selection is "
            "covered by the same epsilon; the computing time of a user is not, and this simulation "
            "does not hide it.",
        ]
    some = f", the first {len(found.parties):,} of them in this run"
    return [
        *texts,
        f"joins=public: {found.willing:,} of {found.asked:,} users asked take part"
        f"{some if len(found.parties) < found.willing else ''}. Whether a user does depends on "
        "private records and is public. NO EPSILON HERE COVERS THAT BIT, for participants or for "
        "others (nor does the published one); the epsilons hold for the messages of a "
        "participant. options.joins=hidden covers it.",
    ]
