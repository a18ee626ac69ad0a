"""Settings of every method with which a run takes a fraction of a second: for audits and tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fedsynth.methods.method import Method

# Settings that many methods share, with values that make a run tiny.
SHRINK: Mapping[str, Any] = {
    "width": 4,
    "spc": 2,
    "runs": 2,
    "outer": 2,
    "inner": 1,
    "batches": 2,
    "updates": 1,
    "epochs": 2,
    "batch": 64,
    "group": 20,
    "iterations": 4,
    "steps": 4,
    "rounds": 4,
    "teachers": 6,
    "features": 16,
}

_TEACHERS = {
    "teachers": 120,
    "batch": 3,
    "channels": 1,
    "hidden": 4,
    "latent": 3,
    "generator_hidden": 4,
    "generator_channels": 2,
}

_SKETCH = {
    "pool": 20,
    "pool_steps": 3,
    "spc": 6,
    "negatives": 4,
    "frequencies": 3,
    "optimise_steps": 3,
    "optimise_from": 12,
}

# The other settings that make single methods tiny.
SPECIAL: Mapping[str, Mapping[str, Any]] = {
    "datalens": {
        **_TEACHERS,
        "entries": 20,
        "sketch_rows": 3,
        "sketch_columns": 50,
        "teacher_steps": 2,
        "pretraining": 4,
        "clip": 0.01,
        "beta": 0.1,
    },
    "dc_gan": {
        "epochs": 1, "channels": 2, "hidden": 4, "latent": 3, "generator_channels": 2,
        "generator_hidden": 4,
    },
    "dp_cgan": {"hidden": 8, "latent": 4},
    "dp_gan": {"hidden": 16, "latent": 4, "batch": 8, "learning_rate": 0.001, "critic_steps": 1},
    "dp_hp": {"order": 3, "product_order": 2, "pairs": 4},
    "dp_kernel": {"images": 3, "min_length_scale": 4.0, "length_scales": 2, "learning_rate": 0.001},
    "dp_merf_ae": {"ae_hidden": 4, "ae_latent": 3, "ae_steps": 3, "ae_batch": 60},
    "dp_merf_batches": {"batch": 60},
    "dp_ntk": {"hidden": 5},
    "dp_sgd": {"steps": None},
    "dp_sgd_joint": {"steps": None},
    "dp_sinkhorn": {"depth": 8, "images": 6, "learning_rate": 0.001},
    "g_pate": {
        **_TEACHERS,
        "projections": 3,
        "bins": 4,
        "threshold": 0.1,
        "rounds": 3,
        "pretraining": 3,
    },
    "gan": {"batch": 4, "critic_steps": 2, "generator": "dcgan", "depth": 8, "latent": 4},
    "gs_wgan": {
        "subsets": 4,
        "per_round": 2,
        "batch": 4,
        "critic_steps": 2,
        "warm_steps": 2,
        "generator": "dcgan",
        "depth": 8,
        "learning_rate": 0.01,
        "keep": False,
    },
    "mst": {"fine_bins": 6, "bins": 3},
    "pate_gan": {"teachers": 30, "batch": 500, "hidden": 16, "latent": 4, "teacher_steps": 2},
    "sketch_teach": _SKETCH,
    "sketch_teach_joint": _SKETCH,
}  # fmt: skip


# What audits change besides, so that one record can move the values by all that a method allows.
AUDITED: Mapping[str, Mapping[str, Any]] = {
    "datalens": {"teachers": 1, "rounds": 2},
    "dp_hp": {"order": 60, "product_order": 40, "pairs": 2},
    "dp_kernel": {"clip": 0.05},
    "g_pate": {"teachers": 1},
    "gs_wgan": {"steps": 2, "clip": 0.01, "learning_rate": 0.1},
    "pate_gan": {"teachers": 1, "batch": 8, "learning_rate": 0.3},
    "psg": {"runs": 1, "outer": 1},
    "psg_joint": {"runs": 1, "outer": 1},
    "psg_prior": {"runs": 1, "outer": 1},
}


def tiny_settings(some: Method[Any], changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All settings of a method, with tiny values."""
    fields = {f.name: f.default for f in dataclasses.fields(some.Config)}
    shrunk = {name: SHRINK.get(name, default) for name, default in fields.items()}
    return {**shrunk, **SPECIAL.get(some.name, {}), **(changes or {})}
