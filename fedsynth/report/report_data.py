"""What the report must be told, because it cannot be read from the run's numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodFacts:
    """A method as the reader should know it."""

    name: str
    summary: str
    source: str = ""
    private: bool = True  # False: a reference that uses the raw data and promises nothing


@dataclass(frozen=True)
class PrivacyRow:
    """What one party did in one stage and has spent since the run began, as one viewer counts.

    The epsilons hold for everything this party released up to and including this stage, so the
    largest is what its participation cost.
    """

    method: str
    epsilon: float  # the budget asked for
    party: int
    stage: int
    records: int
    sampling_rate: float
    steps: int
    noise_multiplier: float
    view: str
    epsilon_pld: float | None = None
    epsilon_rdp: float | None = None
    epsilon_paper: float | None = None


@dataclass(frozen=True)
class ReportFacts:
    """The words of the report; every text may hold any characters."""

    title: str
    scenario: str
    preset: str
    dataset: str
    setting: str  # "class-incremental, one head over the classes seen"
    methods: tuple[MethodFacts, ...]
    unit: str
    relation: str
    accounting: str  # what noise was calibrated to
    delta: float
    privacy: tuple[PrivacyRow, ...] = ()
    assumptions: tuple[str, ...] = ()  # facts treated as public
    noise_seed: int | None = None  # None: noise from the operating system's entropy
    command: str = ""
    notes: tuple[str, ...] = ()
