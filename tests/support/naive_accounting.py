"""Epsilons by hand: losses on a fine grid, composed by Fourier transforms. No library counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import dp_accounting as dp
import numpy as np
from dp_accounting import DpEvent
from scipy import stats

from fedsynth.privacy.accounting.events import BallGaussianDpEvent, OnePartDpEvent, ParallelDpEvent

Step = tuple[str, float, float, int]
"""What happens to the record (removed, added, replaced, replaced in a ball), q, sigma, times."""
CELLS = 1 << 17
IN_BALL = "replaced in a ball"


def naive_epsilon(steps: Sequence[Step], delta: float, cells: int = CELLS) -> float:
    """The epsilon of these steps in one direction, to about a thousandth; never far too small."""
    losses = [(*_losses(change, q, sigma), n) for change, q, sigma, n in steps]
    mean = sum(n * float(mass @ loss) for mass, loss, n in losses)
    spread = math.sqrt(sum(n * float(mass @ (loss - mass @ loss) ** 2) for mass, loss, n in losses))
    widest = max(float(np.abs(loss[mass > delta * 1e-9 / n]).max()) for mass, loss, n in losses)
    reach = abs(mean) + 9 * spread + widest
    cut = 2 * reach / cells
    place = np.arange(cells)
    place[place >= cells // 2] -= cells
    transform: Any = 1.0
    for mass, loss, n in losses:
        below = np.floor(loss / cut).astype(int)
        share = loss / cut - below
        grid = np.zeros(cells)
        np.add.at(grid, below % cells, mass * (1 - share))
        np.add.at(grid, (below + 1) % cells, mass * share)
        transform = transform * np.fft.rfft(grid) ** n
    return epsilon_of_losses(np.fft.irfft(transform, cells), place * cut, delta, reach)


def epsilon_of_losses(mass: np.ndarray, losses: np.ndarray, delta: float, high: float) -> float:
    """The smallest epsilon up to `high` at which these losses exceed `delta` no more."""
    low = 0.0
    for _ in range(45):
        middle = (low + high) / 2
        over = losses > middle
        missed = float((mass[over] * -np.expm1(middle - losses[over])).sum())
        low, high = (middle, high) if missed > delta else (low, middle)
    return high


def _losses(change: str, q: float, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and privacy losses of one step on small intervals of its output."""
    x = np.linspace(-1 - 11 * sigma, 1 + 11 * sigma, 40_001)
    middle = (x[1:] + x[:-1]) / 2
    rest = np.diff(stats.norm.cdf(x / sigma))

    def mixture(shift: float) -> tuple[np.ndarray, np.ndarray]:
        mass = (1 - q) * rest + q * np.diff(stats.norm.cdf((x - shift) / sigma))
        exponent = (2 * shift * middle - shift**2) / (2 * sigma**2)
        stay = -np.inf if q == 1 else np.log1p(-q)
        return mass, np.logaddexp(stay, np.log(q) + exponent)

    (mass, log_one), (_, log_other) = mixture(1.0), mixture(-1.0)
    if change == "removed":
        return mass, log_one
    if change == "added":
        return rest, -log_one
    if change == IN_BALL:
        # Each outcome that removals make likelier, once as they do and once the other way round.
        gained = log_one > 0
        masses = [mass[gained], rest[gained]]
        same = 1 - sum(float(half.sum()) for half in masses)
        return np.array([*masses[0], *masses[1], same]), np.array(
            [*log_one[gained], *-log_one[gained], 0.0]
        )
    return mass, log_one - log_other


def naive_event_epsilon(event: DpEvent, delta: float, relation: str) -> float:
    """The epsilon of an event for this relation: the worst over all ways of a record through its
    parts, each of them composed by hand."""
    worst = 0.0
    for steps in ways(event, relation):
        if steps:
            worst = max(worst, naive_epsilon(_joined(steps), delta))
    return worst


def _joined(steps: Iterable[Step]) -> list[Step]:
    """Equal steps as one with their number."""
    numbers: dict[tuple[str, float, float], int] = {}
    for change, q, sigma, n in steps:
        numbers[change, q, sigma] = numbers.get((change, q, sigma), 0) + n
    return [(*step, n) for step, n in numbers.items()]


def ways(event: DpEvent, relation: str) -> list[list[Step]]:
    """All ways of a record: lists of steps, one list per choice of parts before and after."""
    parts = sorted({part for _, part, _ in _leaves(event, (), 1) if part is not None})
    found = []
    for before, after in product(parts or [None], repeat=2):
        if relation == "add_remove":
            for change in ("removed", "added"):
                found.append(_steps(event, {before: change}, change))
        else:
            moved = {before: "removed", after: "added"} if before != after else {}
            found.append(_steps(event, moved or {before: "replaced"}, "replaced"))
    return list({tuple(sorted(steps)): steps for steps in found}.values())


def _steps(event: DpEvent, moved: dict[Any, str], whole: str) -> list[Step]:
    steps = []
    for (q, sigma, n), part, ball in _leaves(event, (), 1):
        change = whole if part is None else moved.get(part)
        if change is not None:
            steps.append((IN_BALL if ball and change == "replaced" else change, q, sigma, n))
    return steps


def _leaves(event: DpEvent, part: tuple[Any, ...], n: int) -> list[tuple[Any, Any, bool]]:
    """The Gaussians of an event as (q, sigma, times), each with the part of the data it is on, and
    whether its values lie in a ball."""
    where, found = part or None, []
    match event:
        case dp.SelfComposedDpEvent():
            found = _leaves(event.event, part, n * event.count)
        case dp.ComposedDpEvent():
            found = [leaf for inner in event.events for leaf in _leaves(inner, part, n)]
        case OnePartDpEvent():
            found = _leaves(event.event, (event.partition, event.part), n)
        case ParallelDpEvent():
            numbered = enumerate(event.events)
            found = [leaf for i, e in numbered for leaf in _leaves(e, ("parallel", i), n)]
        case dp.PoissonSampledDpEvent():
            assert isinstance(event.event, dp.GaussianDpEvent | BallGaussianDpEvent)
            ball = isinstance(event.event, BallGaussianDpEvent)
            found = [((event.sampling_probability, event.event.noise_multiplier, n), where, ball)]
        case dp.GaussianDpEvent() | BallGaussianDpEvent():
            ball = isinstance(event, BallGaussianDpEvent)
            found = [((1.0, event.noise_multiplier, n), where, ball)]
        case _:
            assert isinstance(event, dp.NoOpDpEvent), f"no count by hand for {event}"
    return found
