"""How noise is drawn, for certificates: what is exact, what deviates, and what is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedsynth.privacy.certificate.derived import is_simulation

SAMPLER = {
    "name": "rounded Gaussian on a power-of-two grid, Box-Muller with as many digits as needed",
    "exact": [
        "sums and noise are 64-bit integers on one public grid, and are added without rounding",
        "each integer is correctly rounded from a Gaussian, in multiple precision where float64 "
        "leaves its rounding open; the tails have no holes",
        "rounding of the sums to the grid is part of the sensitivity that noise is scaled to",
    ],
    "deviation": (
        "statistical distance at most 2^-100 per number from the rounded Gaussian; a record enters "
        "a Poisson sample with its probability up to 2^-64. Neither is added to delta"
    ),
    "assumed": [
        "float64 log, sqrt, sin and cos of the processor err by at most 8 units in the last place",
        "ChaCha20 keyed by HMAC-SHA256 cannot be told from uniform bits: the guarantee is "
        "computational to that extent",
    ],
}

_SYSTEM = (
    "The noise comes from the operating system of the party: the promise holds against whoever "
    "lacks the party's noise key."
)
_SEED = (
    "This is a simulation: the noise comes from a seed. No privacy holds against who knows the "
    "seed, and the seed stands in the ledger."
)
_NONE = "No noise was drawn."


def noise_facts(sources: Sequence[str]) -> dict[str, Any]:
    """The facts of the noise behind a release.

    Args:
        sources: Where the noise comes from, as the ledgers state it.
    """
    simulated = is_simulation(sources)
    words = _SEED if simulated else _SYSTEM if sources else _NONE
    return {"sources": sorted(sources), "simulation": simulated, "words": words, "sampler": SAMPLER}
