"""Vote compression against the published algorithm, written plainly, and the direction it gives."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.pate.datalens.compression import quantised, topk_signs, voted_direction
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.parameters import CONVENTION, DataLensParameters

CLASSES = tuple(range(10))
STAGE = Stage(
    DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,)),
    0,
    1,
    (PartyInfo(0, 60_000, dict.fromkeys(CLASSES, 6000)),),
    CLASSES,
    CLASSES,
)


def budget(epsilon: float) -> Budget:
    return Budget(epsilon, 1e-5, accounting=CONVENTION)


def naive_signs(g: torch.Tensor, k: int, clip: float) -> tuple[list[int], list[float]]:
    """The chosen coordinates of one image, and the chance of a vote of +1 for each coordinate."""
    chosen = sorted(range(len(g)), key=lambda j: -abs(float(g[j])))[:k]
    largest = max(abs(float(v)) for v in g)
    limit = min(largest, clip) if clip else largest
    scaled = [max(-limit, min(limit, float(v))) / limit for v in g]
    return chosen, [(1 + v) / 2 for v in scaled]


@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([0.0, 0.3]))
@settings(max_examples=20, deadline=None)
def test_a_vote_holds_the_signs_of_the_largest_coordinates(seed, k, clip):
    g = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(seed))
    votes = topk_signs(g, k, clip, torch.Generator().manual_seed(seed))
    plain = topk_signs(g, k, clip, None)
    assert set(votes.unique().tolist()) <= {-1, 0, 1}
    for t in range(2):
        for image in range(3):
            chosen, _ = naive_signs(g[t, image], k, clip)
            assert sorted(votes[t, image].nonzero().flatten().tolist()) == sorted(chosen)
            expected = torch.zeros(12)
            expected[chosen] = g[t, image, chosen].sign()
            assert torch.equal(plain[t, image].float(), expected)


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_a_drawn_sign_has_the_clipped_and_scaled_gradient_as_its_mean(clip):
    g = torch.tensor([1.0, -0.6, 0.2, 0.0])
    many = g.expand(1, 20_000, 4)
    mean = topk_signs(many, 4, clip, torch.Generator().manual_seed(0)).float().mean((0, 1))
    _, chances = naive_signs(g, 4, clip)
    torch.testing.assert_close(mean, 2 * torch.tensor(chances) - 1, atol=0.03, rtol=0)


def test_with_a_clip_of_nearly_nothing_signs_are_certain():
    g = torch.randn(4, 2, 50, generator=torch.Generator().manual_seed(0))
    drawn = topk_signs(g, 10, 1e-5, torch.Generator().manual_seed(0))
    assert float((drawn == topk_signs(g, 10, 1e-5, None)).float().mean()) > 0.99


def test_quantised_coordinates_are_adjacent_levels_with_the_right_mean():
    g = torch.tensor([-9.0, -0.5, 0.1, 0.4, 9.0])
    levels = quantised(g.expand(1, 20_000, 5), 4, 0.5, torch.Generator().manual_seed(0))
    assert (int(levels.min()), int(levels.max())) == (-2, 1)
    exact = (g.clamp(-0.5, 0.5) / 0.5 + 1) * 1.5
    torch.testing.assert_close(levels.float().mean((0, 1)) + 2, exact, atol=0.03, rtol=0)
    assert bool(((levels[0] + 2 - exact).abs() < 1 + 1e-6).all())


def test_a_direction_needs_enough_teachers_to_agree():
    cfg = DataLensConfig()
    parameters = DataLensParameters.of(cfg, STAGE, budget(1.0))
    votes = torch.zeros(15, 784)
    votes[0, :4] = torch.tensor([2800.0, 2799.0, -2800.0, -2799.0])
    assert voted_direction(cfg, parameters, votes, 4000)[0, :4].tolist() == [1, 0, -1, 0]
    assert voted_direction(cfg, parameters, votes, 3998)[0, :4].tolist() == [1, 1, -1, -1]
    without_threshold = voted_direction(
        dataclasses.replace(cfg, threshold=False), parameters, votes, 4000
    )
    torch.testing.assert_close(without_threshold, votes / 200)


def test_a_sketch_without_noise_gives_the_largest_coordinates_back():
    cfg = DataLensConfig(compression="sketch", entries=3, beta=0.1, sigma=1e5)
    parameters = DataLensParameters.of(cfg, STAGE, budget(10.0))
    votes = torch.zeros(15, 784)
    votes[:, :5] = torch.tensor([900.0, -800.0, 700.0, 600.0, -500.0])
    direction = voted_direction(cfg, parameters, parameters.sketch.table(votes), 4000)
    assert direction[:, :5].tolist() == [[1, -1, 1, 0, 0]] * 15
    assert not bool(direction[:, 5:].any())
