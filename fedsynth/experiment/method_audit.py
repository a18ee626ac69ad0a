"""Audits of whole methods at small size: all releases of one party, with made data.

The attacker receives what the method's server receives, knows every record but the canary, the
program and the public seeds, and sees the noised outputs of every mechanism in their order. Each
trial runs the method once and twice more with these outputs held fixed, without and with the canary
(`privacy.auditing.recording`), which gives the likelihood ratio. The canary is the candidate that
moves the values the furthest in a first run; its class is one that the party declares and that no
other record has. A method whose sensitivity is a worst case, which no record of these reaches, is
audited weakly: `canary_mu` beside `theoretical_mu` tells how weakly.

The session here has neither transport nor checkpoints; parties, guards, ledgers, mechanisms and
noise are those of every run.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fedsynth.core.enums import DataKind, NoisePlacement
from fedsynth.core.errors import UserError
from fedsynth.core.messages import AggregatedSum, Arrays, Release, Request
from fedsynth.core.outcomes import Outcome
from fedsynth.core.plan import SERVER_VIEW, Plan, View
from fedsynth.core.settings import build
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.data.records import Records
from fedsynth.experiment.tiny_settings import tiny_settings
from fedsynth.methods.method import (
    ExpectedAnswers,
    ExpectedSum,
    Method,
    PartyContext,
    ServerContext,
)
from fedsynth.methods.registry import method as find_method
from fedsynth.privacy.accounting.events import disclosed
from fedsynth.privacy.auditing.breaks import Break, broken
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.findings import Finding, Subject, judge, judge_guesses
from fedsynth.privacy.auditing.one_run import guesses
from fedsynth.privacy.auditing.parties import (
    AuditedParty,
    aggregator,
    audited_party,
    with_record,
)
from fedsynth.privacy.auditing.recording import (
    Recording,
    distance,
    fine_bits,
    log_likelihood_ratio,
)
from fedsynth.privacy.grid import FixedPointGrid
from fedsynth.privacy.noise import NoiseKey

RATIO, BITS = "likelihood ratio of all outputs", "least bits of all outputs"
MAIN = 0.8  # share of the error probability for the likelihood ratio
RECORDS = 16  # of the audited party, and of another one
GUESSED = 0.2  # share of the canaries of one run that are guessed
_SEEDS = 2**62


class _Enough(Exception):
    """All mechanisms have been used; what the server does afterwards is post-processing."""


@dataclass(frozen=True)
class MethodAudit:
    """A method with tiny settings, its plan for made data, and the records of its parties."""

    method: Method[Any]
    config: Any
    plan: Plan
    records: tuple[Records, ...]
    view: View

    @staticmethod
    def of(
        name: str,
        epsilon: float,
        delta: float,
        settings: Mapping[str, Any] | None = None,
        data: str | None = None,
    ) -> MethodAudit:
        """The audit of a method by name.

        Raises:
            UserError: The method is unknown or not private, or cannot release this data.
        """
        method = find_method(name)
        if not method.private:
            raise UserError(
                f"method={name} discloses its records, at infinite cost: there is nothing to audit."
            )
        if data is None:
            data = "shapes" if DataKind.IMAGE in method.kinds else "made_table"
        info = datasets.find(data).info
        if reason := method.unfit(info):
            raise UserError(f"method={name} cannot release data={data}: {reason}.")
        config: Any = build(method.Config, tiny_settings(method, settings), name)
        parties = 2 if hasattr(config, "noise_at") else 1
        images, labels = datasets.load(data, "train", None)
        known = _known(Records(images, labels), parties)
        facts = tuple(
            PartyInfo(party, 2 * RECORDS, {0: RECORDS, 1: RECORDS}) for party in range(parties)
        )
        stage = Stage(info, 0, 1, facts, (0, 1), (0, 1))
        plan = method.plan(config, stage, Budget(epsilon, delta))
        views = plan.of(0).views or {SERVER_VIEW: plan.of(0).event}
        view = next(view for view, event in views.items() if event != disclosed())
        return MethodAudit(method, config, plan, known, view)

    @property
    def claim(self) -> Claim:
        """The events that this view counts."""
        part = self.plan.of(0)
        return Claim(part.views.get(self.view, part.event), self.plan.budget.delta)

    def candidates(self) -> dict[str, Records]:
        """Canaries of class 1, which no record has."""
        example = self.records[0].images[:1]
        largest = 255 if example.dtype == torch.uint8 else 1
        board = torch.arange(example.numel()).view(example.shape) % 2 * largest
        noise = np.random.default_rng(0).random(example.shape) * largest
        images = {
            "bright": torch.full_like(example, largest),
            "dark": torch.zeros_like(example),
            "stripes": board.to(example.dtype),
            "random": torch.from_numpy(noise).to(example.dtype),
        }
        label = torch.tensor([1])
        return {name: Records(image, label) for name, image in images.items()}

    def strongest(self, seed: int, recording: Recording, stop: int) -> tuple[str, Records]:
        """The candidate that moves the values of a recorded run without canary the furthest."""

        def reached(canary: Records) -> float:
            return distance(recording, self.replayed(seed, recording, recording, canary, stop))

        found = {name: reached(canary) for name, canary in self.candidates().items()}
        name = max(found, key=lambda name: found[name])
        return name, self.candidates()[name]

    def run(self, own: Records, seed: int, recording: Recording, stop: int | None = None) -> int:
        """Run the method with these records at party 0; returns the number of requests."""
        with ExitStack() as stack:
            parties = [
                stack.enter_context(
                    audited_party(
                        records,
                        self.plan.info(number),
                        self.plan.of(number),
                        owner=f"party {number}",
                        noise_seed=seed,
                    )
                )
                for number, records in enumerate((own, *self.records[1:]))
            ]
            stack.enter_context(recording.running())
            session = _Session(self, parties, recording, seed, stop)
            with suppress(_Enough):
                self.method.serve(session)
            return session.asked

    def replayed(
        self, seed: int, real: Recording, without: Recording, canary: Records, stop: int
    ) -> Recording:
        """The values of a run with the canary, which is sampled, for the outputs of `real`."""
        made = real.replay_with_canary(without)
        self.run(with_record(self.records[0], canary), seed, made, stop)
        return made


class _Session(ServerContext[Any]):
    """The server's side of one run of one stage."""

    def __init__(
        self,
        audit: MethodAudit,
        parties: Sequence[AuditedParty],
        recording: Recording,
        seed: int,
        stop: int | None,
    ) -> None:
        self.config, self.plan = audit.config, audit.plan
        self.parties = tuple(range(len(parties)))
        self.inherited: tuple[Outcome, ...] = ()
        self.seed, self.device = 0, torch.device("cpu")
        self.central_noise = aggregator(NoiseKey.from_seed(seed, "aggregator"))
        self.asked = 0
        self._turn = threading.RLock()
        self._method, self._sides = audit.method, parties
        self._recording, self._stop = recording, stop
        placement = getattr(audit.config, "noise_at", NoisePlacement.PARTY)
        self._aggregated = placement == NoisePlacement.AGGREGATE  # noise comes after the answers

    def answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedAnswers
    ) -> list[Release]:
        """Let these parties answer in turn."""
        answers = self._answers(parties, request)
        if self.asked == self._stop and not self._aggregated:
            raise _Enough
        return answers

    def _answers(self, parties: Sequence[int], request: Request) -> list[Release]:
        with self._turn:  # methods may ask from several threads
            self.asked += 1
            return [self._answer(party, request) for party in parties]

    def sum_of_answers(
        self, parties: Sequence[int], request: Request, expected: ExpectedSum
    ) -> AggregatedSum:
        """Add up the parties' shares."""
        shapes = expected.shapes
        answers = self._answers(parties, request)
        sums = [torch.stack([a.arrays[name] for a in answers]).sum(0) for name in shapes]
        grid = FixedPointGrid.of(expected.bound, sum(math.prod(shape) for shape in shapes.values()))
        values = self._recording.reveal(sums, grid)
        if self.asked == self._stop:
            raise _Enough
        return AggregatedSum(dict(zip(shapes, values, strict=True)), tuple(parties))

    def rounds(self, n: int, state: dict[str, Any]) -> Iterator[int]:
        """Rounds without checkpoints."""
        yield from range(n)

    def _answer(self, party: int, request: Request) -> Release:
        side = self._sides[party]
        guard = side.guard(request.digest())
        context = PartyContext(self.config, self.plan, side.data, guard)
        release = self._method.party(context, replace(request, arrays=_copies(request.arrays)))
        return replace(release, arrays=_copies(release.arrays))


def _copies(arrays: Arrays) -> Arrays:
    """What a transport does: neither side can change the other's tensors."""
    return {name: value.detach().clone() for name, value in arrays.items()}


def _known(records: Records, parties: int) -> tuple[Records, ...]:
    """Records of class 0 for party 0, and of classes 0 and 1 for the others."""
    of_class = [torch.nonzero(records.labels == c).flatten() for c in (0, 1)]
    chosen = [of_class[0][:RECORDS]]
    for party in range(1, parties):
        chosen.append(torch.cat([o[party * RECORDS : (party + 1) * RECORDS] for o in of_class]))
    return tuple(Records(records.images[c], records.labels[c]) for c in chosen)


@dataclass(frozen=True)
class Options:
    """How an audit is run."""

    runs: int = 200
    choice: Break | None = None
    noise_seed: int | None = None
    confidence: float = 0.95


def audit_in_two_worlds(audit: MethodAudit, options: Options) -> list[Finding]:
    """Attack a method in two worlds; all bounds hold together with the confidence."""
    rng = np.random.default_rng(options.noise_seed)
    scores: dict[str, tuple[list[float], list[float]]] = {RATIO: ([], []), BITS: ([], [])}
    apart = []
    with broken(options.choice):
        canary, stop = _prepared(audit, rng)
        for _ in range(options.runs):
            for world in (0, 1):
                seed = int(rng.integers(_SEEDS))
                without, with_canary = _trial(audit, canary, seed, world, stop)
                scores[RATIO][world].append(log_likelihood_ratio(without, with_canary))
                scores[BITS][world].append(fine_bits(without, with_canary))
                apart.append(distance(without, with_canary))
    shares = {RATIO: MAIN, BITS: 1 - MAIN}
    return [
        judge(
            _subject(audit, options),
            attack,
            scores[attack],
            1 - (1 - options.confidence) * share,
            canary_mu=float(np.median(apart)),
            natural=0.0 if attack == RATIO else None,
        )
        for attack, share in shares.items()
    ]


def _prepared(audit: MethodAudit, rng: np.random.Generator) -> tuple[Records, int]:
    """The strongest canary, and the number of requests that use mechanisms."""
    seed = int(rng.integers(_SEEDS))
    first = Recording()
    stop = audit.run(audit.records[0], seed, first)
    _, canary = audit.strongest(seed, first, stop)
    return canary, stop


def _trial(
    audit: MethodAudit, canary: Records, seed: int, world: int, stop: int
) -> tuple[Recording, Recording]:
    """A run in a world, and what its values would have been without and with the canary."""
    own = audit.records[0]
    real = Recording()
    audit.run(with_record(own, canary) if world else own, seed, real, stop)
    without = real
    if world:
        without = real.replay()
        audit.run(own, seed, without, stop)
    return without, audit.replayed(seed, real, without, canary, stop)


def audit_in_one_run(audit: MethodAudit, options: Options) -> list[Finding]:
    """Attack one run with `options.runs` canaries, each of which is in the data by a fair coin.

    The score of a canary is the likelihood ratio for this canary alone."""
    rng = np.random.default_rng(options.noise_seed)
    base = list(audit.candidates().values())[-1]
    largest = 255 if base.images.dtype == torch.uint8 else 1
    canaries = [
        Records(
            torch.from_numpy(rng.random(base.images.shape) * largest).to(base.images.dtype),
            base.labels,
        )
        for _ in range(options.runs)
    ]
    coins = rng.random(len(canaries)) < 0.5
    own, seed = audit.records[0], int(rng.integers(_SEEDS))
    with broken(options.choice):
        world = own
        for canary, coin in zip(canaries, coins, strict=True):
            world = with_record(world, canary) if coin else world
        real = Recording()
        stop = audit.run(world, seed, real)
        without = real.replay()
        audit.run(own, seed, without, stop)
        scores = [
            log_likelihood_ratio(without, audit.replayed(seed, real, without, canary, stop))
            for canary in canaries
        ]
    guessed = 2 * max(1, int(GUESSED * len(canaries) / 2))
    found = guesses(scores, coins.tolist(), guessed)
    return [judge_guesses(_subject(audit, options), RATIO, found, options.confidence)]


def _subject(audit: MethodAudit, options: Options) -> Subject:
    return Subject(
        audit.method.name,
        audit.claim,
        audit.plan.budget.epsilon,
        audit.view.text,
        broken=options.choice.value if options.choice else "",
    )
