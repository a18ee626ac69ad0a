"""The partition of records among parties: counts from public class counts, then indices.

`counts` uses no data, so a plan can state the number of records of each party before anything is
read. `assign` then draws the records to match. A partitioner is one function:

    @partitioner("name")
    def name(class_counts, parties, rng, *, an_option=1):
        return shares                  # int64 [parties, classes], no column above its class count
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedsynth.core.errors import UserError, unknown

# The published order of class-incremental MNIST and Fashion-MNIST, two classes per stage.
ORDER_OF_TEN = (5, 6, 1, 2, 0, 8, 9, 3, 4, 7)

Cut = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Partitioner:
    """A partitioner: `cut(class_counts, parties, rng, **options)` and the names of its options."""

    name: str
    about: str
    options: tuple[str, ...]
    cut: Cut
    any_option: bool = False  # the partitioner checks further options by itself


_registry: dict[str, Partitioner] = {}


def partitioner(name: str) -> Callable[[Cut], Cut]:
    """Register a partitioner; its keyword-only arguments become its options."""

    def register(cut: Cut) -> Cut:
        if name in _registry:
            raise ValueError(f"there are two partitioners named {name!r}")
        parameters = inspect.signature(cut).parameters.values()
        options = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        about = (cut.__doc__ or "").partition("\n")[0]
        other = any(p.kind is p.VAR_KEYWORD for p in parameters)
        _registry[name] = Partitioner(name, about, options, cut, other)
        return cut

    return register


def names() -> tuple[str, ...]:
    """The names of all partitioners."""
    return tuple(_registry)


def find(name: str) -> Partitioner:
    """A partitioner by name."""
    if name not in _registry:
        raise unknown("partitioner", name, _registry)
    return _registry[name]


def counts(
    name: str,
    class_counts: Sequence[int],
    parties: int,
    rng: np.random.Generator,
    /,
    **options: object,
) -> np.ndarray:
    """The number of records of each class and party: int64 [parties, classes].

    Depends on public class counts only.

    Args:
        name: The partitioner.
        class_counts: Public number of records of each class, none of which is exceeded.
        parties: Number of parties, none of which is left empty.
        rng: Public randomness.
        options: Options of the partitioner.

    Raises:
        UserError: The partitioner or an option is unknown, or no such partition exists.

    >>> from fedsynth.core.randomness import numpy_generator
    >>> counts("classes", [4, 5, 6, 7], 2, numpy_generator(0, "partition"), order=[3, 0, 1, 2])
    array([[4, 0, 0, 7],
           [0, 5, 6, 0]])
    >>> counts("iid", [10, 10], 4, numpy_generator(0, "partition")).sum(1)
    array([5, 5, 5, 5])
    """
    chosen = find(name)
    for option in options:
        if option not in chosen.options and not chosen.any_option:
            if ":" in option:
                spaced = option.replace(":", ": ")
                raise UserError(
                    f"options has the key {option!r}, without a value: write a space after the "
                    f"colon, as in 'options={{{spaced}}}'."
                )
            raise (
                unknown(f"option of partitioner {name}", option, chosen.options)
                if chosen.options
                else UserError(f"partitioner {name} has no options, but {option!r} was given.")
            )
    _whole("parties", parties)
    shares: np.ndarray = chosen.cut(tuple(int(c) for c in class_counts), parties, rng, **options)
    empty = np.flatnonzero(shares.sum(1) == 0)
    if len(empty):
        given = "".join(f" {option}={value}," for option, value in options.items())
        raise UserError(
            f"partitioner {name} leaves party {empty[0]} without records"
            f"{f' ({len(empty)} parties in all)' if len(empty) > 1 else ''}:{given} "
            f"parties={parties}, records={sum(class_counts)}. {_advice(chosen)}"
        )
    return shares


def assign(labels: np.ndarray, shares: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """The records of each party as ascending indices: disjoint, with exactly the counts `shares`.

    >>> from fedsynth.core.randomness import numpy_generator
    >>> labels = np.array([0, 1, 0, 1, 1])
    >>> parts = assign(labels, np.array([[1, 2], [1, 1]]), numpy_generator(0, "assign"))
    >>> [sorted(labels[part].tolist()) for part in parts], sorted(np.concatenate(parts).tolist())
    ([[0, 1, 1], [0, 1]], [0, 1, 2, 3, 4])
    """
    labels = np.asarray(labels)
    parts: list[list[np.ndarray]] = [[] for _ in shares]
    for c in range(shares.shape[1]):
        members = rng.permutation(np.flatnonzero(labels == c))
        required = int(shares[:, c].sum())
        if required > len(members):
            raise UserError(
                f"the partition asks for {required} records of class {c}, but there are "
                f"{len(members)}: the counts belong to another data set or split."
            )
        pieces = np.split(members[:required], np.cumsum(shares[:, c])[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)).astype(np.int64) for part in parts]


def class_blocks(
    classes: int, blocks: int, order: Sequence[int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Cut the classes, in this order, into blocks of equal size, one per stage or party.

    >>> class_blocks(10, 5)
    ((5, 6), (1, 2), (0, 8), (9, 3), (4, 7))
    """
    if order is None:
        order = ORDER_OF_TEN if classes == len(ORDER_OF_TEN) else range(classes)
    order = tuple(order) if isinstance(order, Iterable) else (order,)
    if len(order) != classes or not all(c in order for c in range(classes)):
        raise UserError(
            f"order={list(order)} must name each of the {classes} classes 0..{classes - 1} once."
        )
    _whole("parties or stages", blocks)
    if classes % blocks:
        fits = ", ".join(str(n) for n in range(1, classes + 1) if classes % n == 0)
        raise UserError(
            f"{classes} classes cannot be cut into {blocks} equal blocks, one per party or stage. "
            f"Allowed: {fits}."
        )
    width = classes // blocks
    return tuple(order[k * width : (k + 1) * width] for k in range(blocks))


@partitioner("classes")
def classes(
    class_counts: Sequence[int],
    parties: int,
    _rng: np.random.Generator,
    *,
    order: Sequence[int] | None = None,
) -> np.ndarray:
    """Whole classes: party k holds the k-th block of `order`."""
    shares = np.zeros((parties, len(class_counts)), np.int64)
    for party, block in enumerate(class_blocks(len(class_counts), parties, order)):
        shares[party, list(block)] = np.asarray(class_counts)[list(block)]
    return shares


@partitioner("iid")
def iid(class_counts: Sequence[int], parties: int, rng: np.random.Generator) -> np.ndarray:
    """Shuffle all records and cut them into equal parts (sizes differ by one at most)."""
    remaining = np.array(class_counts, np.int64)
    shares = []
    for size in _even(int(remaining.sum()), parties):
        shares.append(rng.multivariate_hypergeometric(remaining, size, method="marginals"))
        remaining = remaining - shares[-1]
    return np.array(shares, np.int64)


@partitioner("dirichlet")
def dirichlet(
    class_counts: Sequence[int], parties: int, rng: np.random.Generator, *, alpha: float = 0.5
) -> np.ndarray:
    """Split each class by a Dirichlet draw: a small `alpha` makes parties differ more."""
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool)
    if not number or not 0 < alpha < np.inf:
        raise UserError(f"alpha={alpha!r} of partitioner dirichlet must be a number above 0.")
    edges = np.cumsum(rng.dirichlet(np.full(parties, alpha), len(class_counts)), axis=1)
    edges[:, -1] = 1.0
    cuts = np.rint(edges * np.asarray(class_counts)[:, None]).astype(np.int64)
    return np.diff(cuts, axis=1, prepend=0).T


@partitioner("shards")
def shards(
    class_counts: Sequence[int],
    parties: int,
    rng: np.random.Generator,
    *,
    shards_per_party: int = 2,
) -> np.ndarray:
    """Sort by class, cut into equal shards, and deal `shards_per_party` to each party."""
    _whole("shards_per_party", shards_per_party)
    bounds = np.cumsum([0, *_even(sum(class_counts), parties * shards_per_party)])
    class_ends = np.cumsum(class_counts)
    overlap = np.minimum(bounds[1:, None], class_ends) - np.maximum(
        bounds[:-1, None], class_ends - np.asarray(class_counts)
    )
    content = np.maximum(overlap, 0)[rng.permutation(len(bounds) - 1)]
    return content.reshape(parties, shards_per_party, -1).sum(1)


@partitioner("single")
def single(class_counts: Sequence[int], parties: int, _rng: np.random.Generator) -> np.ndarray:
    """One party holds everything."""
    if parties != 1:
        raise UserError(f"partitioner single is for parties=1, not {parties}: try iid.")
    return np.array([class_counts], np.int64)


@partitioner("users")
def users(
    _class_counts: Sequence[int],
    _parties: int,
    _rng: np.random.Generator,
    *,
    flip: object = None,
    chosen: object = None,
    accuracy: object = None,
    volunteers: object = None,
    joins: object = None,
    rehearse: object = None,
) -> np.ndarray:
    """One user per party, for data with users; the images of some may be inverted.

    The partition is then given by the data and not drawn: `experiment.user_partition` reads it, and
    `experiment.client_selection` describes the options."""
    given = [
        value
        for value in (flip, chosen, accuracy, volunteers, joins, rehearse)
        if value is not None
    ]
    raise UserError(
        "partition=users is for data with users: data=emnist_users, or one of the sets that it "
        f"selects. This set has none{', so that its options do not apply' if given else ''}."
    )


@partitioner("parties")
def parties(_class_counts: Sequence[int], _parties: int, _rng: np.random.Generator) -> np.ndarray:
    """The parties that the data state: a party column, or a folder per party."""
    raise UserError("partition=parties is given by the data: see `experiment.scenario`.")


@partitioner("flower")
def flower(
    class_counts: Sequence[int],
    parties: int,
    rng: np.random.Generator,
    /,
    *,
    name: str = "IidPartitioner",
    **settings: object,
) -> np.ndarray:
    """A partitioner of Flower Datasets by its class: `options={name: DirichletPartitioner, ...}`.

    It sees the labels that the public class counts imply, and no record."""
    from fedsynth.data.flower_partitioners import flower_counts

    return flower_counts(name, class_counts, parties, int(rng.integers(2**31)), settings)


def _even(total: int, parts: int) -> list[int]:
    """`parts` whole numbers with sum `total` that differ by one at most."""
    return [total // parts + (k < total % parts) for k in range(parts)]


def _whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{name}={value!r} must be a whole number of 1 or more.")


def _advice(chosen: Partitioner) -> str:
    if "alpha" in chosen.options:
        return "Raise alpha, lower parties, or change the seed."
    if "shards_per_party" in chosen.options:
        return "Lower parties or shards_per_party."
    return "Lower parties."
