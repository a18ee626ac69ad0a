"""Audits of whole methods at small size: all releases of one party, with made data.

The attacker receives what an observer of the method receives, knows every record but the canary,
the program and the public seeds, and sees the noised outputs of every mechanism in their order.
Each trial runs the method and then again with these outputs held fixed and the records of the other
world (`privacy.auditing.recording`), which gives the likelihood ratio: where records are sampled,
relative to the run without the canary. Everything after the last mechanism is post-processing and
is left out. Every observer with a finite claim is audited, from the same runs: the server, a server
that sees sums only, one that knows the noise of colluding parties, the public.

A method whose sensitivity is a worst case, which no record at this size reaches, is audited weakly:
`canary_mu` beside `theoretical_mu` tells how weakly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsynth.core.plan import View
from fedsynth.data.records import Records
from fedsynth.experiment.audit_worlds import Worlds, candidates, strongest
from fedsynth.experiment.audited_method import AuditedMethod
from fedsynth.privacy.auditing.breaks import Break, broken
from fedsynth.privacy.auditing.claims import Claim
from fedsynth.privacy.auditing.findings import Finding, Subject, judge, judge_guesses
from fedsynth.privacy.auditing.one_run import guesses
from fedsynth.privacy.auditing.parties import with_record
from fedsynth.privacy.auditing.recording import ComparedRuns, Recording, log_likelihood_ratio

RATIO, BITS = "likelihood ratio of all outputs", "least bits of all outputs"
MAIN = 0.8  # share of the error probability for the likelihood ratios
GUESSED = 0.2  # share of the canaries of one run that are guessed
_SEEDS = 2**62


@dataclass(frozen=True)
class Options:
    """How an audit is run."""

    runs: int = 200
    choice: Break | None = None
    noise_seed: int | None = None
    confidence: float = 0.95
    hidden: bool = False  # the canary is all that the party has
    candidates: int | None = None  # that are tried; none: all


def audit_in_two_worlds(audited: AuditedMethod, options: Options) -> list[Finding]:
    """Attack a method in two worlds; all bounds hold together with the confidence."""
    rng = np.random.default_rng(options.noise_seed)
    views = audited.claims
    ratios: dict[View, tuple[list[float], list[float]]] = {view: ([], []) for view in views}
    apart: dict[View, list[float]] = {view: [] for view in views}
    bits: tuple[list[float], list[float]] = ([], [])
    with broken(options.choice):
        seed = int(rng.integers(_SEEDS))
        worlds, uses = strongest(audited, seed, hidden=options.hidden, most=options.candidates)
        for _ in range(options.runs):
            for world in (0, 1):
                trial = run_trial(audited, worlds, int(rng.integers(_SEEDS)), world, uses)
                for view in views:
                    ratios[view][world].append(trial.ratio(view.colluding))
                    apart[view].append(trial.distance(view.colluding))
                bits[world].append(trial.bits())
    share = MAIN / len(views)
    findings = [
        judge(
            _subject(audited, view, claim, options, worlds.name),
            RATIO,
            ratios[view],
            1 - (1 - options.confidence) * share,
            canary_mu=float(np.median(apart[view])),
            natural=0.0,
        )
        for view, claim in views.items()
    ]
    view, claim = next(iter(views.items()))
    of_bits = judge(
        _subject(audited, view, claim, options, worlds.name),
        BITS,
        bits,
        1 - (1 - options.confidence) * (1 - MAIN),
        canary_mu=findings[0].canary_mu,
    )
    return [*findings, of_bits]


def run_trial(
    audited: AuditedMethod, worlds: Worlds, seed: int, world: int, uses: int
) -> ComparedRuns:
    """Run the method in a world, and again for what the values would have been in both worlds."""
    real = audited.run(worlds.both[world], seed, Recording(stop=uses))

    def again(records: Records, without: Recording | None = None) -> Recording:
        return audited.run(records, seed, real.replay(without))

    if not audited.samples:
        other = again(worlds.both[1 - world])
        return ComparedRuns(other, real) if world else ComparedRuns(real, other)
    bare = worlds.added[0] is None
    without = real if bare and not world else again(worlds.known)
    first = without if bare else again(worlds.both[0], without)
    return ComparedRuns(first, again(worlds.both[1], without), without)


def audit_in_one_run(audited: AuditedMethod, options: Options) -> list[Finding]:
    """Attack one run with `options.runs` canaries, each of which is in the data by a fair coin.

    The score of a canary is the likelihood ratio for this canary alone."""
    rng = np.random.default_rng(options.noise_seed)
    (view, claim), *_ = audited.claims.items()
    base = next(iter(candidates(audited).values()))
    whole = not base.images.is_floating_point()
    canaries = []
    for _ in range(options.runs):
        image = rng.random(base.images.shape) * (255 if whole else 1)
        canaries.append(Records(base.images.new_tensor(image), base.labels))
    coins = rng.random(len(canaries)) < 0.5
    own, seed = audited.natural, int(rng.integers(_SEEDS))
    with broken(options.choice):
        world = own
        for canary, coin in zip(canaries, coins, strict=True):
            world = with_record(world, canary) if coin else world
        real = audited.run(world, seed, Recording())
        without = audited.run(own, seed, real.replay())
        scores = [
            log_likelihood_ratio(
                without, audited.run(with_record(own, canary), seed, real.replay(without))
            )
            for canary in canaries
        ]
    guessed = 2 * max(1, int(GUESSED * len(canaries) / 2))
    found = guesses(scores, coins.tolist(), guessed)
    subject = _subject(audited, view, claim, options, f"{len(canaries)} random records")
    return [judge_guesses(subject, RATIO, found, options.confidence)]


def _subject(
    audited: AuditedMethod, view: View, claim: Claim, options: Options, canary: str
) -> Subject:
    """The claim of a view: that of the budget, or for a view beside it what it counts."""
    budget, main = audited.plan.budget, next(iter(audited.claims))
    return Subject(
        audited.method.name,
        claim,
        budget.epsilon if view == main else claim.epsilon,
        view.text,
        unit=budget.unit.value,
        broken=options.choice.value if options.choice else "",
        canary=canary,
    )
