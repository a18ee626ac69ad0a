"""Privacy events: types, constructors, the stored JSON form, and the flattening of trees.

An event is a tree of `dp_accounting` events. It records the mechanisms that were used and not an
epsilon; `accounting.accountant` computes that. Neighbouring data sets differ in one record, added
or removed, and a noise multiplier is the noise's standard deviation over the L2 sensitivity for
that relation.

>>> describe(repeated(poisson(0.0214, gaussian(0.81)), 300))
'300 x Poisson(q=0.0214) of Gaussian(sigma=0.81)'
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import attr
import dp_accounting as dp
from dp_accounting import DpEvent

from fedsynth.core.errors import UserError, unknown

IN_BALL = "gaussian_in_ball"  # the type of `BallGaussianDpEvent` in ledgers
OF_EXCHANGE = "gaussian_of_exchange"  # that of `ExchangeGaussianDpEvent`
Flat = Counter[str]
"""The number of times that each base event happened, by its canonical text."""


@attr.s(frozen=True, slots=True, auto_attribs=True)
class BallGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """A Gaussian mechanism whose values lie in one ball, whatever the records are.

    Claim: any change of the records moves the values by at most the diameter of the ball, which
    `noise_multiplier` is relative to. Under add/remove it is a Gaussian; a replaced record moves it
    no further than a removed one, and changes both parts where records lie in parts.
    """

    noise_multiplier: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ExchangeGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """A Gaussian mechanism that bounds the exchange of a record and nothing else.

    Claim: an exchange that leaves all public facts as they are moves the values by at most the
    bound that `noise_multiplier` is relative to. Under add/remove, in parts of the data and in
    samples it counts as a disclosure.
    """

    noise_multiplier: float


GAUSSIANS = (dp.GaussianDpEvent, BallGaussianDpEvent, ExchangeGaussianDpEvent)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ParallelDpEvent(DpEvent):  # type: ignore[misc]
    """Each record lies in one part of a fixed partition of the data; part i pays `events[i]`.

    Claim: adding or removing a record touches no other part, so that the cost is the worst branch
    and not the sum.
    Assumption: the part of a record is a property of that record alone, for example its class.
    Equal parallel events, in one tree or one ledger, are taken to cut the data the same way: name
    the parts in the same order every time.
    """

    events: Sequence[DpEvent]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class OnePartDpEvent(DpEvent):  # type: ignore[misc]
    """`event`, on part number `part` of a fixed partition into `parts` parts called `partition`.

    Claim: events on different parts of one partition cost as much as the worst part and not as the
    sum, so that a ledger can charge part by part.
    Assumption: as for `ParallelDpEvent`.
    """

    partition: str
    part: int
    parts: int
    event: DpEvent


def gaussian(sigma: float) -> DpEvent:
    """One Gaussian mechanism; `sigma` is the noise multiplier, 0 for no noise at all."""
    return dp.GaussianDpEvent(_number("noise multiplier sigma", sigma, 0.0, math.inf))


def gaussian_in_ball(sigma: float) -> DpEvent:
    """One Gaussian mechanism on values in a ball; `sigma` is relative to its diameter, which bounds
    any change of the records: see `BallGaussianDpEvent`."""
    return BallGaussianDpEvent(_number("noise multiplier sigma", sigma, 0.0, math.inf))


def gaussian_of_exchange(sigma: float) -> DpEvent:
    """One Gaussian mechanism with noise relative to what the exchange of a record moves, which
    bounds nothing else: see `ExchangeGaussianDpEvent`."""
    return ExchangeGaussianDpEvent(_number("noise multiplier sigma", sigma, 0.0, math.inf))


def poisson(q: float, event: DpEvent) -> DpEvent:
    """`event` on a Poisson sample: each record is present independently with probability `q`.

    All events inside share one sample: 32 Gaussians inside cost far more than 32 of these.
    """
    return dp.PoissonSampledDpEvent(_number("sampling rate q", q, 0.0, 1.0), event)


def without_replacement(records: int, sample: int, event: DpEvent) -> DpEvent:
    """`event` on a fresh sample of `sample` of `records` records without replacement.

    Only the published convention `wor_bound` counts this; fedsynth itself samples by `poisson`.
    """
    if _count("records", records) < _count("sample", sample):
        raise UserError(f"cannot draw {sample} of {records} records without replacement.")
    return dp.SampledWithoutReplacementDpEvent(int(records), int(sample), event)


def repeated(event: DpEvent, n: int) -> DpEvent:
    """`event`, `n` times over the same data; later ones may depend on earlier results."""
    return dp.SelfComposedDpEvent(event, _count("number of repetitions", n))


def composed(events: Sequence[DpEvent]) -> DpEvent:
    """All of these over the same data, in any order; later ones may depend on earlier results."""
    return dp.ComposedDpEvent(list(events))


def parallel(events: Sequence[DpEvent]) -> DpEvent:
    """One of these per part of a fixed partition, such as classes: see `ParallelDpEvent`."""
    return ParallelDpEvent(tuple(events))


def one_part(partition: str, part: int, parts: int, event: DpEvent) -> DpEvent:
    """`event` on one part of a partition that is cut into `parts`: see `OnePartDpEvent`."""
    if _count("part", part) >= _count("parts", parts):
        raise UserError(f"part {part} of {parts} does not exist: parts are counted from 0.")
    if not isinstance(partition, str):
        raise UserError(f"the name of a partition must be a text, not {partition!r}.")
    return OnePartDpEvent(partition, int(part), int(parts), event)


def disclosed() -> DpEvent:
    """A disclosure of private data without noise: epsilon is infinite."""
    return dp.NonPrivateDpEvent()


def without_noise(event: DpEvent) -> DpEvent:
    """One disclosure per use in `event`: what the same uses cost if no noise is added.

    The uses of a part of an event are a part of the uses of the whole, so that charges add up to
    the plan that holds them."""
    return unflatten(Counter({to_text(disclosed()): sum(flatten(event).values())}))


def nothing() -> DpEvent:
    """No use of private data: epsilon is zero."""
    return dp.NoOpDpEvent()


def to_json(event: DpEvent) -> dict[str, Any]:
    """The event as JSON data, the form in ledgers; `from_json` restores it to the last bit.

    Raises:
        UserError: The tree holds an event that no constructor of this module makes.
    """
    match event:
        case _ if isinstance(event, GAUSSIANS):
            fields: dict[str, Any] = {"sigma": float(event.noise_multiplier)}
        case dp.PoissonSampledDpEvent():
            fields = {"q": float(event.sampling_probability), "event": to_json(event.event)}
        case dp.SampledWithoutReplacementDpEvent():
            fields = {"records": event.source_dataset_size, "sample": event.sample_size}
            fields["event"] = to_json(event.event)
        case dp.SelfComposedDpEvent():
            fields = {"times": int(event.count), "event": to_json(event.event)}
        case dp.ComposedDpEvent() | ParallelDpEvent():
            fields = {"events": [to_json(e) for e in event.events]}
        case OnePartDpEvent():
            fields = {**attr.asdict(event, recurse=False), "event": to_json(event.event)}
        case dp.NonPrivateDpEvent() | dp.NoOpDpEvent():
            fields = {}
        case _:
            raise UserError(
                f"fedsynth cannot count or store the event {type(event).__name__}: build events "
                "with the constructors of fedsynth.privacy.accounting.events "
                f"({', '.join(sorted(_FIELDS))})."
            )
    return {"type": _NAMES[type(event)], **fields}


_BY_PART = (IN_BALL, OF_EXCHANGE)  # a move between two parts costs more than a change of one
_NAMES: Mapping[type, str] = {
    dp.GaussianDpEvent: "gaussian",
    BallGaussianDpEvent: IN_BALL,
    ExchangeGaussianDpEvent: OF_EXCHANGE,
    dp.PoissonSampledDpEvent: "poisson",
    dp.SampledWithoutReplacementDpEvent: "without_replacement",
    dp.SelfComposedDpEvent: "repeated",
    dp.ComposedDpEvent: "composed",
    ParallelDpEvent: "parallel",
    OnePartDpEvent: "one_part",
    dp.NonPrivateDpEvent: "disclosed",
    dp.NoOpDpEvent: "nothing",
}
_FIELDS: Mapping[str, frozenset[str]] = {
    "gaussian": frozenset({"sigma"}),
    IN_BALL: frozenset({"sigma"}),
    OF_EXCHANGE: frozenset({"sigma"}),
    "poisson": frozenset({"q", "event"}),
    "without_replacement": frozenset({"records", "sample", "event"}),
    "repeated": frozenset({"times", "event"}),
    "composed": frozenset({"events"}),
    "parallel": frozenset({"events"}),
    "one_part": frozenset({"partition", "part", "parts", "event"}),
    "disclosed": frozenset(),
    "nothing": frozenset(),
}


def from_json(data: Mapping[str, Any]) -> DpEvent:
    """The event that `to_json` wrote.

    Raises:
        UserError: The data is not an event; the text names the offending field.
    """
    if not isinstance(data, Mapping) or "type" not in data:
        raise UserError(f'an event is a JSON object with a "type", not {data!r}.')
    kind = data["type"]
    if kind not in _FIELDS:
        raise unknown("event type", kind, _FIELDS)
    if set(data) - {"type"} != _FIELDS[kind]:
        raise UserError(
            f"event {kind!r} has the fields {sorted(_FIELDS[kind])}, not "
            f"{sorted(set(data) - {'type'})}."
        )
    if "events" in data and not isinstance(data["events"], list):
        raise UserError(f"the events of {kind!r} must be a list, not {data['events']!r}.")
    inner = from_json(data["event"]) if "event" in data else nothing()
    build: Mapping[str, Callable[[], DpEvent]] = {
        "gaussian": lambda: gaussian(data["sigma"]),
        IN_BALL: lambda: gaussian_in_ball(data["sigma"]),
        OF_EXCHANGE: lambda: gaussian_of_exchange(data["sigma"]),
        "poisson": lambda: poisson(data["q"], inner),
        "without_replacement": lambda: without_replacement(data["records"], data["sample"], inner),
        "repeated": lambda: repeated(inner, data["times"]),
        "composed": lambda: composed([from_json(e) for e in data["events"]]),
        "parallel": lambda: parallel([from_json(e) for e in data["events"]]),
        "one_part": lambda: one_part(data["partition"], data["part"], data["parts"], inner),
        "disclosed": disclosed,
        "nothing": nothing,
    }
    return build[kind]()


def to_text(event: DpEvent) -> str:
    """`to_json` as one line of text, the same for the same tree: a key for caches and hashes."""
    return json.dumps(to_json(event), sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_text(text: str) -> DpEvent:
    """The event of `to_text`."""
    return from_json(json.loads(text))


def flatten(event: DpEvent) -> Flat:
    """The number of times of each base event, independent of the tree's grouping and order.

    Base events are Gaussians, disclosures, samplings (with all events that share their sample),
    parallel events, and these on one part. Two trees with the same flattening cost the same.
    """
    match event:
        case dp.SelfComposedDpEvent():
            return _times(flatten(event.event), event.count)
        case dp.ComposedDpEvent():
            return sum((flatten(e) for e in event.events), Counter())
        case dp.PoissonSampledDpEvent() | dp.SampledWithoutReplacementDpEvent():
            return _flatten_sample(event)
        case ParallelDpEvent():
            return _flatten_parallel(event)
        case OnePartDpEvent():
            return _flatten_part(event)
    return Counter() if isinstance(event, dp.NoOpDpEvent) else Counter({to_text(event): 1})


def unflatten(flat: Flat) -> DpEvent:
    """A tree of exactly these events; the same tree for equal counters."""
    parts = [from_text(t) if n == 1 else repeated(from_text(t), n) for t, n in sorted(flat.items())]
    if not parts:
        return nothing()
    return parts[0] if len(parts) == 1 else composed(parts)


def describe(event: DpEvent) -> str:
    """The event in words, with numbers rounded to four digits."""
    whole, partitions = by_part(flatten(event))
    words = [_words(from_text(t), n) for t, n in sorted(whole.items())]
    for (_, number), parts in partitions.items():
        alike = Counter(describe(unflatten(flat)) for flat in parts.values())
        words += [f"{text} in {n} of {number} parts" for text, n in alike.items()]
    return " + ".join(words) or "nothing"


def _words(event: DpEvent, n: int) -> str:
    times = "" if n == 1 else f"{n} x "
    if isinstance(event, GAUSSIANS):
        of = " of any change" if isinstance(event, BallGaussianDpEvent) else ""
        of = " of an exchange" if isinstance(event, ExchangeGaussianDpEvent) else of
        return f"{times}Gaussian(sigma={event.noise_multiplier:.4g}{of})"
    if isinstance(event, dp.NonPrivateDpEvent):
        return f"{times}disclosed without noise"
    if isinstance(event, ParallelDpEvent):
        branches = " | ".join(describe(e) for e in event.events)
        return f"{times}the worst of [{branches}]"
    inner = describe(event.event)
    inner = f"[{inner}]" if " + " in inner or " x " in inner else inner
    if isinstance(event, dp.PoissonSampledDpEvent):
        return f"{times}Poisson(q={event.sampling_probability:.4g}) of {inner}"
    return f"{times}Sample({event.sample_size} of {event.source_dataset_size}) of {inner}"


def _flatten_sample(event: dp.PoissonSampledDpEvent | dp.SampledWithoutReplacementDpEvent) -> Flat:
    inner = flatten(event.event)
    if isinstance(event, dp.PoissonSampledDpEvent):
        q = float(event.sampling_probability)
        sampled = poisson(q, unflatten(inner))
    else:
        sizes = (event.source_dataset_size, event.sample_size)
        q = sizes[1] / sizes[0] if sizes[0] else 0.0
        sampled = without_replacement(*sizes, unflatten(inner))
    if q == 1.0:
        return inner
    return Counter({to_text(sampled): 1}) if q > 0.0 and inner else Counter()


def _flatten_parallel(event: ParallelDpEvent) -> Flat:
    """Take common repetitions out of the branches; equal branches are one event.

    Branches keep their positions: part 0 with a large and part 1 with a small event differ from the
    reverse. Exceptions are values in balls, where a record that is replaced by one of another part
    changes both branches at a higher cost than a change of one, and those that bound no removal.
    """
    branches = [flatten(e) for e in event.events]
    alike = all(flat == branches[0] for flat in branches)
    if alike and (len(branches) < 2 or not any(t in str(branches[0]) for t in _BY_PART)):
        return branches[0] if branches else Counter()
    n = math.gcd(*(count for flat in branches for count in flat.values()))
    once = [Counter({t: c // n for t, c in flat.items()}) for flat in branches]
    return Counter({to_text(parallel([unflatten(flat) for flat in once])): n})


def _flatten_part(event: OnePartDpEvent) -> Flat:
    """Distribute the part over its base events, so that charges of one part add up."""
    inner, place = flatten(event.event), (event.partition, event.part, event.parts)
    if event.parts == 1:
        return inner
    return Counter({to_text(one_part(*place, from_text(t))): n for t, n in inner.items()})


def by_part(flat: Flat) -> tuple[Flat, dict[tuple[str, int], dict[int, Flat]]]:
    """Split a flattening into the events on all records and those on parts.

    Returns:
        The events on all records; and per partition (its name and number of parts) the events on
        each part.
    """
    whole: Flat = Counter()
    partitions: dict[tuple[str, int], dict[int, Flat]] = {}
    for text, n in sorted(flat.items()):
        event = from_text(text)
        if isinstance(event, OnePartDpEvent):
            parts = partitions.setdefault((event.partition, event.parts), {})
            parts.setdefault(event.part, Counter())[to_text(event.event)] += n
        else:
            whole[text] += n
    return whole, partitions


def _times(flat: Flat, n: int) -> Flat:
    return Counter({text: count * n for text, count in flat.items()}) if n else Counter()


def _number(name: str, value: object, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UserError(f"{name} must be a number, not {value!r}.")
    number = float(value)
    if not (low <= number <= high and math.isfinite(number)):
        raise UserError(f"{name} must lie between {low:g} and {high:g} and be finite: {value!r}.")
    return number


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 0:
        raise UserError(f"{name} must be a whole number, 0 or more, not {value!r}.")
    return int(value)
