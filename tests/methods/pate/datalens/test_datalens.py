"""DataLens against the published algorithm, written plainly, and its printed numbers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.enums import Unit
from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget, DatasetInfo, PartyInfo, Stage
from fedsynth.methods.pate.datalens.compression import direction, quantised, signs
from fedsynth.methods.pate.datalens.config import DataLensConfig
from fedsynth.methods.pate.datalens.datalens import DataLens
from fedsynth.methods.pate.datalens.generator import StudentGenerator
from fedsynth.methods.pate.datalens.parameters import CONVENTION, Recipe, spending, teachers_of
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import gaussian, poisson, repeated

MNIST = DatasetInfo("mnist", (1, 28, 28), 10, (0.1307,), (0.3081,))
TINY = DatasetInfo("tiny", (1, 8, 8), 3, (0.5,), (0.25,))
DELTA = 1e-5


def stage_of(
    data: DatasetInfo = MNIST, records: tuple[int, ...] = (60_000,), stages: int = 1
) -> Stage:
    parties = tuple(
        PartyInfo(i, n, dict.fromkeys(range(data.classes), n // data.classes))
        for i, n in enumerate(records)
    )
    classes = tuple(range(data.classes))
    return Stage(data, 0, stages, parties, classes, classes)


def budget(epsilon: float, accounting: str = CONVENTION) -> Budget:
    return Budget(epsilon, DELTA, accounting=accounting)


def paper(event: Any) -> float:
    return epsilon(event, DELTA, CONVENTION)


# Printed and worked-out numbers


def test_one_image_and_one_round_cost_what_the_published_orders_say():
    sensitivity = 2 * math.sqrt(200)
    assert paper(gaussian(5000 / sensitivity)) == pytest.approx(0.06133, abs=5e-6)
    fifteen = repeated(gaussian(5000 / sensitivity), 15)
    assert paper(fifteen) == pytest.approx(0.10591, abs=5e-6)
    assert paper(gaussian(5000 / (sensitivity * math.sqrt(15)))) == pytest.approx(paper(fifteen))


@pytest.mark.parametrize(
    ("target", "settings", "images", "rounds", "spent"),
    [
        (1.0, {}, 15, 86, 0.99571),
        (10.0, {}, 15, 109, 9.96889),
        (10.0, {"entries": 350, "sigma": 1000.0}, 15, 146, 9.96964),
        (10.0, {"entries": 350, "sigma": 900.0}, 15, 118, 9.95616),
    ],
)
def test_the_budget_pays_for_the_published_number_of_rounds(
    target, settings, images, rounds, spent
):
    recipe = Recipe.of(DataLensConfig(**settings), stage_of(), budget(target))
    assert (recipe.images, recipe.rounds) == (images, rounds)
    assert sum(recipe.teachers.values()) == 4000
    assert paper(recipe.event) == pytest.approx(spent, abs=5e-6)
    assert paper(recipe.paper_event) == pytest.approx(spent, abs=5e-6)


@pytest.mark.parametrize(
    ("target", "entries", "sigma", "rounds", "spent"),
    [(1.0, 700, 9000.0, 44, 0.99304), (10.0, 500, 700.0, 27, 9.7887)],
)
def test_celeba_s_rounds(target, entries, sigma, rounds, spent):
    multiplier = sigma / (2 * math.sqrt(entries * 27))
    found = spending(budget(target), multiplier=multiplier, most=300)
    assert found == (rounds, multiplier)
    assert paper(repeated(gaussian(multiplier), rounds)) == pytest.approx(spent, abs=5e-5)


def test_one_more_round_would_be_too_much_and_the_exact_count_is_smaller():
    recipe = Recipe.of(DataLensConfig(), stage_of(), budget(1.0))
    assert paper(repeated(gaussian(recipe.multiplier), 87)) == pytest.approx(1.00168, abs=5e-6)
    assert epsilon(recipe.event, DELTA) == pytest.approx(0.7381, abs=5e-5)


@pytest.mark.parametrize(("target", "true"), [(1.0, 1.58), (10.0, 20.4)])
def test_the_published_partition_gives_two_teachers_to_some_images(target, true):
    """Then one image reaches twice as far: what is stated beside what it is."""
    recipe = Recipe.of(DataLensConfig(), stage_of(), budget(target))
    twice = repeated(gaussian(recipe.multiplier / 2), recipe.rounds)
    assert epsilon(twice, DELTA) == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize(
    ("sigma", "batch", "target", "steps"),
    [(8.2, 128, 0.05, 3524), (3.4, 512, 0.2, 448), (1.8, 512, 1.0, 2193)],
)
def test_the_steps_of_its_gaussian_mechanism_baseline(sigma, batch, target, steps):
    step = poisson(batch / 60_000, gaussian(sigma))
    assert epsilon(repeated(step, steps), DELTA, "rdp_improved_2000") <= target
    assert epsilon(repeated(step, steps + 1), DELTA, "rdp_improved_2000") > target


def test_settings_come_from_the_data_set_and_the_nearer_budget():
    fashion = dataclasses.replace(MNIST, name="fashion_mnist")
    recipe = Recipe.of(DataLensConfig(), stage_of(fashion), budget(1.0))
    assert (recipe.entries, recipe.sigma, recipe.beta) == (200, pytest.approx(5000), 0.9)
    recipe = Recipe.of(DataLensConfig(), stage_of(fashion), budget(10.0))
    assert (recipe.entries, recipe.beta, recipe.code) == (350, 0.27, 64)


# Plans


@pytest.mark.parametrize("most", [5, 40])
def test_what_the_cap_on_rounds_leaves_over_is_spent_on_less_noise(most):
    stage = stage_of()
    free = Recipe.of(DataLensConfig(), stage, budget(1.0, "pld"))
    recipe = Recipe.of(DataLensConfig(rounds=most), stage, budget(1.0, "pld"))
    assert (recipe.rounds, free.rounds > 86) == (most, True)
    assert recipe.sigma < 5000
    assert epsilon(recipe.event, DELTA) == pytest.approx(1.0, rel=1e-3)
    assert epsilon(recipe.event, DELTA) <= 1.0 + 1e-9


@pytest.mark.parametrize("compression", ["none", "d2p", "sketch"])
def test_under_the_published_count_nobody_overspends_either(compression):
    cfg = DataLensConfig(compression=compression, sigma=9e4)
    recipe = Recipe.of(cfg, stage_of(), budget(1.0))
    assert paper(recipe.event) <= 1.0
    assert paper(recipe.paper_event) <= 1.0 + 1e-9


def test_too_little_noise_for_a_single_round_is_refused_with_what_would_do():
    with pytest.raises(UserError, match=r"at least (\d+)") as refused:
        Recipe.of(DataLensConfig(sigma=100.0), stage_of(), budget(1.0))
    least = float(str(refused.value).split("at least ")[1].split(",")[0])
    assert Recipe.of(DataLensConfig(sigma=least), stage_of(), budget(1.0)).rounds >= 1
    with pytest.raises(UserError, match="784 numbers"):
        Recipe.of(DataLensConfig(entries=785), stage_of(), budget(1.0))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=12), st.integers(1, 2000))
@settings(max_examples=30, deadline=None)
def test_every_party_hosts_its_share_of_the_teachers(records, teachers):
    hosted = teachers_of(DataLensConfig(teachers=teachers), stage_of(TINY, tuple(records)))
    wanted = min(max(teachers, len(records)), sum(records))
    assert min(hosted.values()) >= 1
    assert wanted <= sum(hosted.values()) <= wanted + len(records)
    for party, n in enumerate(records):
        assert abs(hosted[party] - wanted * n / sum(records)) <= 1


def test_stages_share_the_teachers():
    assert sum(teachers_of(DataLensConfig(), stage_of(records=(12_000,), stages=5)).values()) == 800


@pytest.mark.parametrize(
    ("changes", "parties", "said"),
    [
        # 5 / 5000: hardly anything but noise, two-sided tail at 0.7 * 0.001 deviations
        ({"teachers": 5, "sigma": 5000.0, "rounds": 80}, 5, ("ratio of 0.00045 ", "100% of all")),
        ({"teachers": 1000, "sigma": 5000.0, "rounds": 80}, 1, ("ratio of 0.2 ", "89% of all")),
        (
            {"teachers": 1000, "sigma": 5000.0, "rounds": 80, "at": "aggregate"},
            4,
            ("ratio of 0.2 ",),
        ),
        ({"teachers": 4000}, 1, ()),
    ],
)
def test_few_teachers_are_warned_of_in_figures(changes, parties, said):
    stage = stage_of(records=(60_000 // parties,) * parties)
    cfg = DataLensConfig(beta=0.7, **changes)
    warnings = DataLens().plan(cfg, stage, budget(1.0, "pld")).warnings
    assert bool(warnings) == bool(said)
    assert all(text in warnings[0] for text in said)


def test_for_users_every_party_is_one_teacher():
    stage = stage_of(records=(200,) * 300)
    users = Budget(1.0, DELTA, unit=Unit.USER)
    recipe = Recipe.of(DataLensConfig(rounds=5), stage, users)
    assert set(recipe.teachers.values()) == {1}
    assert recipe.images == 30
    assert epsilon(recipe.event, DELTA) <= 1.0 + 1e-9


# Ballots


def naive_signs(g: torch.Tensor, k: int, clip: float) -> tuple[list[int], list[float]]:
    """The chosen coordinates of one image, and the chance of a vote of +1 for each coordinate."""
    chosen = sorted(range(len(g)), key=lambda j: -abs(float(g[j])))[:k]
    largest = max(abs(float(v)) for v in g)
    limit = min(largest, clip) if clip else largest
    scaled = [max(-limit, min(limit, float(v))) / limit for v in g]
    return chosen, [(1 + v) / 2 for v in scaled]


@given(st.integers(0, 1000), st.integers(1, 12), st.sampled_from([0.0, 0.3]))
@settings(max_examples=20, deadline=None)
def test_a_ballot_holds_the_signs_of_the_largest_coordinates(seed, k, clip):
    g = torch.randn(2, 3, 12, generator=torch.Generator().manual_seed(seed))
    ballots = signs(g, k, clip, torch.Generator().manual_seed(seed))
    plain = signs(g, k, clip, None)
    assert set(ballots.unique().tolist()) <= {-1, 0, 1}
    for t in range(2):
        for image in range(3):
            chosen, _ = naive_signs(g[t, image], k, clip)
            assert sorted(ballots[t, image].nonzero().flatten().tolist()) == sorted(chosen)
            expected = torch.zeros(12)
            expected[chosen] = g[t, image, chosen].sign()
            assert torch.equal(plain[t, image].float(), expected)


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_a_drawn_sign_has_the_mean_it_should(clip):
    g = torch.tensor([1.0, -0.6, 0.2, 0.0])
    many = g.expand(1, 20_000, 4)
    mean = signs(many, 4, clip, torch.Generator().manual_seed(0)).float().mean((0, 1))
    _, chances = naive_signs(g, 4, clip)
    torch.testing.assert_close(mean, 2 * torch.tensor(chances) - 1, atol=0.03, rtol=0)


def test_with_a_clip_of_nearly_nothing_signs_are_certain():
    g = torch.randn(4, 2, 50, generator=torch.Generator().manual_seed(0))
    drawn = signs(g, 10, 1e-5, torch.Generator().manual_seed(0))
    assert float((drawn == signs(g, 10, 1e-5, None)).float().mean()) > 0.99


def test_quantised_coordinates_are_neighbours_of_their_place_and_right_on_average():
    g = torch.tensor([-9.0, -0.5, 0.1, 0.4, 9.0])
    found = quantised(g.expand(1, 20_000, 5), 4, 0.5, torch.Generator().manual_seed(0))
    assert (int(found.min()), int(found.max())) == (-2, 1)
    place = (g.clamp(-0.5, 0.5) / 0.5 + 1) * 1.5
    torch.testing.assert_close(found.float().mean((0, 1)) + 2, place, atol=0.03, rtol=0)
    assert bool(((found[0] + 2 - place).abs() < 1 + 1e-6).all())


def test_the_direction_is_where_enough_teachers_point():
    cfg = DataLensConfig()
    recipe = Recipe.of(cfg, stage_of(), budget(1.0))
    votes = torch.zeros(15, 784)
    votes[0, :4] = torch.tensor([2800.0, 2799.0, -2800.0, -2799.0])
    assert direction(cfg, recipe, votes, 4000)[0, :4].tolist() == [1, 0, -1, 0]
    assert direction(cfg, recipe, votes, 3998)[0, :4].tolist() == [1, 1, -1, -1]
    every = direction(dataclasses.replace(cfg, threshold=False), recipe, votes, 4000)
    torch.testing.assert_close(every, votes / 200)


def test_a_sketch_without_noise_gives_the_largest_coordinates_back():
    cfg = DataLensConfig(compression="sketch", entries=3, beta=0.1, sigma=1e5)
    recipe = Recipe.of(cfg, stage_of(), budget(10.0))
    votes = torch.zeros(15, 784)
    votes[:, :5] = torch.tensor([900.0, -800.0, 700.0, 600.0, -500.0])
    found = direction(cfg, recipe, recipe.sketch.table(votes), 4000)
    assert found[:, :5].tolist() == [[1, -1, 1, 0, 0]] * 15
    assert not bool(found[:, 5:].any())


# The curator

SMALL = DataLensConfig(
    teachers=12, entries=9, batch=3, channels=2, hidden=5, code=3, rounds=6, generator_hidden=4,
    generator_channels=2,
)  # fmt: skip


def test_the_generator_moves_towards_its_images_plus_the_direction():
    """The first of Adam's steps, against the loss as it is printed."""
    stage = stage_of(TINY, (60,))
    recipe = Recipe.of(SMALL, stage, budget(10.0))
    studio, plain = (
        StudentGenerator(SMALL, recipe, stage, ("s",), torch.device("cpu")) for _ in range(2)
    )
    way = torch.randint(-1, 2, (3, 64), generator=torch.Generator().manual_seed(0)).float()
    studio.learn(0, way)
    codes, labels = plain._drawn(0)
    images = plain.generator(codes, labels)
    target = (images + SMALL.step * way.view_as(images)).detach()
    sgd = torch.optim.Adam(plain.generator.parameters(), SMALL.rate, betas=(0.5, 0.999))
    ((target - plain.generator(codes, labels)) ** 2).sum().backward()
    sgd.step()
    for a, b in zip(studio.generator.parameters(), plain.generator.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
