"""The server's side of secure aggregation: the neighbour graph, and the unmasking of the sum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.common.secure_aggregation.crypto.symmetric_encryption import generate_shared_key
from flwr.supercore.primitives.asymmetric import bytes_to_public_key

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Arrays
from fedsynth.privacy.secagg.masking import CURVE, Keys, agreed_mask, flat, mask_of, unflat
from fedsynth.privacy.secagg.sharing import combine_shares

COMPLETE = 20  # most parties of which each is a neighbour of every other one


@dataclass(frozen=True)
class NeighbourGraph:
    """The public graph of parties that share keys; each party is its own neighbour."""

    of: Mapping[int, tuple[int, ...]]
    threshold: int  # shares that reveal a secret: more than half, so two disjoint sets cannot

    @staticmethod
    def choose(parties: Sequence[int], at_least: int, rng: np.random.Generator) -> NeighbourGraph:
        """The complete graph of up to 20 parties. Beyond that, a ring in random order in which each
        party has its nearest ones on both sides as neighbours, 3 log2(parties) in all."""
        count = len(parties)
        if count <= COMPLETE:
            all_parties = tuple(sorted(parties))
            most = max(2, count // 2 + 1, min(2 * count // 3 + 1, at_least))
            return NeighbourGraph(dict.fromkeys(all_parties, all_parties), most)
        side = _ring_side(count)
        order = rng.permutation(np.array(sorted(parties)))
        near = {
            int(party): tuple(
                sorted(int(order[(position + k) % count]) for k in range(-side, side + 1))
            )
            for position, party in enumerate(order)
        }
        return NeighbourGraph(near, _ring_threshold(count))


def least_threshold(at_least: int) -> int:
    """The smallest threshold of any graph with `at_least` or more parties.

    A party accepts no smaller one: it knows how many shares its noise counts on, and not how many
    parties the server asked."""
    complete = max(2, at_least // 2 + 1, min(2 * at_least // 3 + 1, at_least))
    if at_least <= COMPLETE:
        return min(complete, _ring_threshold(COMPLETE + 1))
    return _ring_threshold(at_least)


def _ring_side(count: int) -> int:
    return int(np.ceil(1.5 * np.log2(count)))


def _ring_threshold(count: int) -> int:
    return 2 * (2 * _ring_side(count) + 1) // 3 + 1


def unmasked(
    masked: Mapping[int, Arrays],
    given: Mapping[int, Mapping[int, tuple[bool, bytes]]],
    dropped: Iterable[int],
    public: Mapping[int, Keys],
    neighbours: NeighbourGraph,
) -> dict[str, torch.Tensor]:
    """The sum of the masked arrays without their masks.

    Args:
        masked: The masked arrays per party.
        given: Per party, the shares it gave for unmasking: of a seed (True) or of a key (False).
        dropped: The parties that shared keys and sent no arrays.
        public: The public keys per party.
        neighbours: The neighbour graph.

    Raises:
        UserError: Too few shares of a secret were given, or they do not fit together.
    """
    shape = next(iter(masked.values()))
    total = np.zeros(sum(value.numel() for value in shape.values()), np.uint64)
    for arrays in masked.values():
        total += flat(arrays)
    for party in masked:
        seed = _secret(party, True, given, neighbours.threshold)
        total -= mask_of(seed, len(total))
    for party in dropped:
        value = int.from_bytes(_secret(party, False, given, neighbours.threshold), "big")
        private = ec.derive_private_key(value, CURVE)
        for other in neighbours.of[party]:
            if other in masked:
                agreed = generate_shared_key(private, bytes_to_public_key(public[other][0]))
                words = agreed_mask(agreed, len(total))
                total -= words if other > party else np.uint64(0) - words
    return unflat(total, shape)


def _secret(
    party: int, seed: bool, given: Mapping[int, Mapping[int, tuple[bool, bytes]]], threshold: int
) -> bytes:
    shares = [by[party][1] for by in given.values() if party in by and by[party][0] == seed]
    if len(shares) < threshold:
        raise UserError(
            f"the masks of party {party} cannot be taken off the sum: {len(shares)} of its "
            f"neighbours gave their shares, and {threshold} are needed"
        )
    try:
        return combine_shares(shares[:threshold])
    except ValueError as error:
        raise UserError(f"the shares of party {party}'s masks do not fit together") from error
