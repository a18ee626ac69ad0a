"""Labels from scores: every class has an image."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.methods.common.class_indices import argmax_covering_classes


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_no_class_is_left_without_an_image(seed: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(8, classes, generator=generator)
    logits[:, 0] += 3 * (seed % 3)  # one class that wants all of them
    indices = argmax_covering_classes(logits)
    assert set(indices.tolist()) == set(range(classes))
    plain = logits.argmax(1)
    absent = classes - len(plain.unique())
    assert int((indices != plain).sum()) == absent
