"""Closed vocabularies of fedsynth. Each value is a `str`, as it is typed and stored."""

from __future__ import annotations

from enum import StrEnum


class Unit(StrEnum):
    """The unit of privacy: what one neighbouring data set has more than the other."""

    RECORD = "record"
    USER = "user"  # all records of one party


class Relation(StrEnum):
    """The neighbouring relation between two data sets."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"


class Accounting(StrEnum):
    """The accountant to which noise is calibrated; `PAPER` is the authors' published convention."""

    PLD = "pld"
    RDP = "rdp"
    PAPER = "paper"


class DataKind(StrEnum):
    """The kind of data that a data set holds and a method can release."""

    IMAGE = "image"
    TABLE = "table"


class NoisePlacement(StrEnum):
    """The point at which noise is added to a sum over parties."""

    PARTY = "party"  # each party adds all of it to its own sum
    AGGREGATE = "aggregate"  # a trusted aggregator adds it once
    DISTRIBUTED = "distributed"  # each party adds a share; only the sum is revealed


class ViewKind(StrEnum):
    """The kind of observer for whom an event is counted."""

    SERVER = "server"  # receives every release
    SUM = "sum"  # receives nothing but sums over parties
    COLLUDING = "colluding"  # a server that also holds the noise of some parties
    PUBLIC = "public"  # receives the end result only
    COMPARISON = "comparison"  # not an observer: a count that bounds nothing, for comparison


class StageOrder(StrEnum):
    """The division of parties into stages: one stage per party, or one stage of all."""

    IN_TURN = "in_turn"
    TOGETHER = "together"


class SecureSum(StrEnum):
    """The implementation of the secure sum."""

    IDEAL = "ideal"  # the simulation stands in for a secure sum
    SECAGG = "secagg"  # SecAgg+ between the parties


class Preset(StrEnum):
    """The amount of computation; `PAPER` is the published setting."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PAPER = "paper"


class EngineName(StrEnum):
    """The program in which the apps run."""

    RAY = "ray"
    INPROCESS = "inprocess"
    FLOWER = "flower"
