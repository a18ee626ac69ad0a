"""GS-WGAN: published and defensible epsilons, and the attack that tells them apart."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from instruments import Crash, Fuse
from scipy import stats

from fedsynth.core.errors import UserError
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.methods.gs_wgan.config import GSWGANConfig
from fedsynth.methods.gs_wgan.gs_wgan import GSWGAN, JOINT_ORDER
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import flatten, from_json
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.ledger import read_entries
from fedsynth.privacy.ledger_entry import CHARGE
from fedsynth.storage.run_directory import RunDirectory

GS_WGAN = GSWGAN()
DELTA = 1e-5
BUDGET = Budget(10.0, DELTA)


def stage_of(parties: int = 1, records: int = 60_000) -> Stage:
    info = tuple(
        PartyInfo(p, records // parties, dict.fromkeys(range(10), records // parties // 10))
        for p in range(parties)
    )
    data = datasets.find("mnist").info
    return Stage(data, 0, 1, info, tuple(range(10)), tuple(range(10)))


def published(**changes) -> GSWGANConfig:
    return replace(GSWGANConfig(noise=1.07), **changes)


def test_the_published_setting_costs_ten_as_published_and_much_more_in_truth():
    share = GS_WGAN.plan(published(), stage_of(), BUDGET).parties[0]
    assert epsilon(share.paper_event, DELTA, "wor_bound") == pytest.approx(9.9926, abs=1e-4)
    assert epsilon(share.views[JOINT_ORDER], DELTA, "pld") == pytest.approx(329.6, rel=1e-3)
    assert epsilon(share.views[JOINT_ORDER], DELTA, "rdp") == pytest.approx(365.8, rel=1e-3)
    # 20 turns of every subset, each with 32 gradients at once
    assert epsilon(share.event, DELTA) == pytest.approx(379, abs=0.5)
    assert epsilon(share.event, DELTA) == pytest.approx(
        gdp_epsilon(math.sqrt(20 * 32) / 1.07, DELTA), rel=1e-6
    )


@pytest.mark.parametrize(
    ("users", "paper", "visits", "real"), [(866, 14.9745, 35, 622), (2136, 5.3372, 14, 279)]
)
def test_federated_emnist_as_published_and_for_a_server_that_sees_the_turns(
    users, paper, visits, real
):
    """Round robin makes the mean number of turns, rounded, that of most users."""
    cfg = published(subsets=users, steps=30_000)
    plan = GS_WGAN.plan(cfg, stage_of(users, 100 * users), Budget(10.0, DELTA, unit="user"))
    user = next(share for share in plan.parties if share.steps == visits)
    assert epsilon(user.paper_event, DELTA, "wor_bound") == pytest.approx(paper, abs=1e-4)
    assert {share.steps for share in plan.parties} <= {visits - 1, visits, visits + 1}
    assert epsilon(user.event, DELTA) == pytest.approx(real, abs=1)


@pytest.mark.parametrize(("steps", "sigma"), [(20, 2.83), (300, 10.95)])
def test_round_robin_makes_turns_countable(steps, sigma):
    """One turn each with noise 2.83, or fifteen with 10.95, cost ten."""
    cfg = GSWGANConfig(subsets=20, steps=steps)
    share = GS_WGAN.plan(cfg, stage_of(), BUDGET).parties[0]
    assert share.noise_multiplier * math.sqrt(32) == pytest.approx(sigma, abs=0.015)
    assert 9.99 < epsilon(share.event, DELTA) <= 10.0


@pytest.mark.parametrize("order", ["round_robin", "random"])
@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("parties", [1, 3])
def test_calibration_meets_the_budget_of_the_unit_with_most_turns(order, unit, parties):
    cfg = GSWGANConfig(subsets=9, steps=40, per_round=2, order=order)
    stage = stage_of(parties)
    plan = GS_WGAN.plan(cfg, stage, Budget(3.0, DELTA, unit=unit))
    costs = [epsilon(share.event, DELTA) for share in plan.parties]
    assert max(costs) == pytest.approx(3.0, rel=1e-6)
    schedule = cfg.schedule(stage)
    for share in plan.parties:
        counts = schedule.turns[share.party]
        hits = sum(counts.values()) if unit == "user" else max(counts.values())
        mu = math.sqrt(hits) / share.noise_multiplier
        assert epsilon(share.event, DELTA) == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-6)


def test_the_published_count_is_refused_as_a_budget():
    with pytest.raises(UserError, match=r"gs_wgan.noise=1\.0\d+.*epsilon=3[78]\d"):
        GS_WGAN.plan(GSWGANConfig(), stage_of(), Budget(10.0, DELTA, accounting="wor_bound"))


# An attack on the published count, in the worst case that its theorem allows. The gradients of the
# target's subset are +C along one direction, and -C without the target, as those of all other
# subsets. The attack counts the steps whose mean gradient lies far above -C.

K, T, B, SIGMA = 1000, 20_000, 32, 1.07
SHIFT = math.sqrt(B) / SIGMA  # from -C to +C, in deviations of the mean's noise 2 C sigma / sqrt(B)
FAR = 4.5


def chances() -> tuple[float, float]:
    """The probabilities that a step lies far above, with the target and without."""
    without = stats.norm.sf(FAR)
    return stats.norm.sf(FAR - SHIFT) / K + without * (1 - 1 / K), without


def lower_bound(at_least: int) -> float:
    """The largest epsilon that the test refutes, exactly: the count is binomial."""
    with_target, without = (stats.binom.sf(at_least - 1, T, p) for p in chances())
    return math.log((with_target - DELTA) / without)


def test_an_exact_attack_refutes_ten_and_not_the_joint_order():
    joint = epsilon(
        GS_WGAN.plan(published(), stage_of(), BUDGET).parties[0].views[JOINT_ORDER], DELTA
    )
    assert lower_bound(10) == pytest.approx(42, abs=0.5)
    assert 10 < lower_bound(5) < lower_bound(10) < joint


def test_a_simulated_attack_refutes_ten():
    """With 99.5% confidence, from simulated runs only."""
    rng = np.random.default_rng(0)
    runs = {True: 100_000, False: 10_000_000}
    caught = {}
    for target, number in runs.items():
        hits = rng.binomial(T, 1 / K, number) if target else 0
        far = rng.binomial(hits, stats.norm.sf(FAR - SHIFT))
        far = far + rng.binomial(T - hits, stats.norm.sf(FAR), number)
        caught[target] = int((far >= 5).sum())
    tail = 0.005 / 2
    sure = stats.beta.ppf(tail, caught[True], runs[True] - caught[True] + 1)
    most = stats.beta.ppf(1 - tail, caught[False] + 1, runs[False] - caught[False])
    assert math.log((sure - DELTA) / most) > 13.5


@pytest.mark.parametrize("steps", [1000, 15_000])
def test_the_same_attack_reaches_the_stated_epsilon_and_never_exceeds_it(steps):
    """Under round robin the attack sums the gradients of the target's subset."""
    share = GS_WGAN.plan(GSWGANConfig(subsets=K, steps=steps), stage_of(), BUDGET).parties[0]
    apart = math.sqrt(steps / K) / share.noise_multiplier  # of the sums, in deviations
    thresholds = np.linspace(-2, 12, 2801)
    with_target, without = stats.norm.sf(thresholds - apart), stats.norm.sf(thresholds)
    useful = with_target > 2 * DELTA
    refuted = np.log((with_target[useful] - DELTA) / without[useful]).max()
    assert 9.99 < refuted <= 10 * (1 + 1e-9)


@pytest.mark.usefixtures("no_noise")
def test_the_released_generator_can_have_its_own_learning_rate(here, tmp_path):
    """A smaller one moves the images less; the same one, given explicitly, changes nothing."""

    def images(name: str, **changes) -> torch.Tensor:
        made = tiny.tiny_job(
            "gs_wgan",
            tmp_path / name,
            "together",
            {"learning_rate": 0.01, "warm_steps": 0, **changes},
        )
        tiny.release(made, here)
        return RunDirectory(tmp_path / name).releases.load(made.name, 1).images

    default, explicit = images("default"), images("explicit", generator_learning_rate=0.01)
    unmoved = images("unmoved", generator_learning_rate=1e-12)
    small = images("small", generator_learning_rate=0.001)
    assert torch.equal(default, explicit)
    assert 0 < (small - unmoved).abs().mean() < (default - unmoved).abs().mean()


# Sets on the way


def run_of(here, folder, **changes):
    """A tiny run over three parties with four subsets of one turn per round, and its release."""
    sizes = {"steps": 6, "per_round": 1, "warm_steps": 0, "noise": 40.0}
    job = tiny.tiny_job("gs_wgan", folder / "run", "together", {**sizes, **changes})
    tiny.release(job, here)
    return job, RunDirectory(folder / "run").releases.load(job.name, 1)


@pytest.mark.usefixtures("no_noise")
def test_a_set_on_the_way_is_the_last_one_of_fewer_rounds(here, tmp_path):
    _, long = run_of(here, tmp_path / "long", intermediate=2)
    _, alone = run_of(here, tmp_path / "alone")
    assert torch.equal(long.images, alone.images)
    assert set(long.earlier) == {2, 4}
    for rounds, early in long.earlier.items():
        _, short = run_of(here, tmp_path / str(rounds), steps=rounds)
        assert torch.equal(early.images, short.images)
        assert torch.equal(early.labels, short.labels)


@pytest.mark.parametrize("order", ["round_robin", "random"])
@pytest.mark.parametrize("unit", ["record", "user"])
def test_the_event_by_then_is_all_that_a_run_of_so_many_rounds_charges(order, unit, here, tmp_path):
    job = tiny.tiny_job(
        "gs_wgan", tmp_path / "run", "together", {"noise": 40.0, "steps": 6, "order": order}
    )
    job = replace(job, budget=replace(job.budget, unit=unit))
    plan, turns = job.plan(0), job.config.schedule(job.plan(0).stage).rounds
    tiny.release(job, here)
    for share in plan.parties:
        folder = job.party_folder(share.party)
        charged = [
            flatten(from_json(entry.event))
            for entry in read_entries(folder / "ledger.jsonl")
            if entry.kind == CHARGE
        ]
        for rounds in range(1, 7):
            by_then = GS_WGAN.event_after(job.config, plan, share, rounds)
            used = sum(t.party == share.party for part in turns[:rounds] for t in part)
            assert flatten(by_then) == sum(charged[:used], Counter())
        assert flatten(by_then) == flatten(share.event)


@pytest.mark.usefixtures("checkpoint_every_round")
@pytest.mark.parametrize("part", [0.4, 0.7])
def test_a_crash_changes_no_set_on_the_way(part, here, tmp_path):
    _, expected = run_of(here, tmp_path / "whole", intermediate=5)
    with pytest.MonkeyPatch.context() as patch:
        fuse = Fuse(patch)
        run_of(here, tmp_path / "counted", intermediate=5)
    with pytest.MonkeyPatch.context() as patch:
        Fuse(patch, at=round(part * fuse.count))
        with pytest.raises(Crash):
            run_of(here, tmp_path / "crashed", intermediate=5)
    _, resumed = run_of(here, tmp_path / "crashed", intermediate=5)
    assert set(expected.earlier) == set(resumed.earlier) == {1, 2, 3, 4, 5}
    for steps, early in expected.earlier.items():
        assert torch.equal(early.images, resumed.earlier[steps].images)
    assert torch.equal(expected.images, resumed.images)
