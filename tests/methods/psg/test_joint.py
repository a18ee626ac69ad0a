"""Joint PSG: the spread of records over parties, and the noise of the sum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_runs import released_sets

from fedsynth.methods.psg.gradient_matching import MatchedImages
from fedsynth.privacy.mechanisms import gradients as gradient_mechanisms

ALL = {"batch": 1000}  # more than a party has: every record is in every batch


@pytest.mark.usefixtures("no_noise")
def test_the_spread_of_records_over_parties_changes_nothing(here, tmp_path):
    """The sum over three parties is the sum over one that holds everything."""
    one = {"partition": "single", "parties": 1, "stages": "together"}
    three = {"partition": "iid", "parties": 3, "stages": "together"}
    _, (alone,) = released_sets("psg_joint", tmp_path / "one", here, ALL, **one)
    _, (shared,) = released_sets("psg_joint", tmp_path / "three", here, ALL, **three)
    torch.testing.assert_close(alone.images, shared.images, rtol=1e-3, atol=1e-3)
    assert torch.equal(alone.labels, shared.labels)


@pytest.mark.parametrize(("noise_at", "factor"), [("party", 3**0.5), ("aggregate", 1.0)])
def test_the_noise_of_three_parties_adds_up_and_that_of_an_aggregator_does_not(
    noise_at, factor, here, tmp_path, monkeypatch
):
    """With gradients of zero, what the images are matched to is noise alone."""
    targets: list[torch.Tensor] = []

    def zeros(model: torch.nn.Module, *_: Any, **__: Any) -> list[torch.Tensor]:
        return [torch.zeros_like(p) for p in model.parameters()]

    def match(_: MatchedImages, __: torch.nn.Module, real: list[torch.Tensor]) -> None:
        targets.append(torch.cat([g.flatten() for g in real]))

    monkeypatch.setattr(gradient_mechanisms, "clipped_gradient_sum", zeros)
    monkeypatch.setattr(MatchedImages, "match", match)
    together = {"partition": "iid", "parties": 3, "stages": "together"}
    changes = {"noise_at": noise_at, "clip": 0.5}
    job, _ = released_sets("psg_joint", tmp_path, here, changes, **together)
    plan = job.plan(0)
    expected = plan.parties[0].noise_multiplier * 0.5 * factor
    assert torch.cat(targets).std().item() == pytest.approx(expected, rel=0.03)
    assert len(targets) == plan.rounds == plan.parties[0].steps
