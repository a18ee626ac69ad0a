"""Tiny certified releases of each kind, to export."""

from __future__ import annotations

from pathlib import Path

import certified

from fedsynth.engine.base import Engine

KINDS = {
    "image": ("dp_merf", "in_turn"),
    "table": ("dp_merf", "table"),
    "model": ("dp_sgd", "together"),
    "reference": ("dm", "table"),
}


def released(out: Path, engine: Engine) -> dict[str, Path]:
    """The archives of a tiny release of each kind."""
    found = {}
    for kind, (method, scenario) in KINDS.items():
        job = certified.released(method, out / kind, engine, scenario)
        found[kind] = sorted(certified.folder_of(job).glob("*.npz"))[0]
    return found
