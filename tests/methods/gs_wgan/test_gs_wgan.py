"""GS-WGAN: published and defensible counts, the attack that tells them apart, critics at home."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_runs as tiny
import torch
from scipy import stats

from fedsynth.core.errors import UserError
from fedsynth.core.messages import Request
from fedsynth.core.types import Budget, PartyInfo, Stage
from fedsynth.data import registry as datasets
from fedsynth.experiment import session
from fedsynth.methods.gs_wgan.config import GSWGANConfig
from fedsynth.methods.gs_wgan.critic import Critic
from fedsynth.methods.gs_wgan.generator import GeneratorTrainer, fill, flat, new_generator
from fedsynth.methods.gs_wgan.gs_wgan import JOINT_ORDER, VISIT, WARM
from fedsynth.methods.registry import method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.gdp import gdp_epsilon
from fedsynth.privacy.ledger import SLACK, BudgetExceeded, read_entries, total
from fedsynth.storage.run_directory import RunDirectory

WGAN = method("gs_wgan")
DELTA = 1e-5
BUDGET = Budget(10.0, DELTA)


def a_task(parties: int = 1, records: int = 60_000) -> Stage:
    info = tuple(
        PartyInfo(p, records // parties, dict.fromkeys(range(10), records // parties // 10))
        for p in range(parties)
    )
    data = datasets.find("mnist").info
    return Stage(data, 0, 1, info, tuple(range(10)), tuple(range(10)))


# What it costs


def published(**changes) -> GSWGANConfig:
    return replace(GSWGANConfig(noise=1.07), **changes)


def test_the_published_setting_costs_ten_as_published_and_much_more_in_truth():
    share = WGAN.plan(published(), a_task(), BUDGET).parties[0]
    assert epsilon(share.paper_event, DELTA, "wor_bound") == pytest.approx(9.9926, abs=1e-4)
    assert epsilon(share.views[JOINT_ORDER], DELTA, "pld") == pytest.approx(329.6, rel=1e-3)
    assert epsilon(share.views[JOINT_ORDER], DELTA, "rdp") == pytest.approx(365.8, rel=1e-3)
    # 20 visits to every subset, each of 32 answers at once
    assert epsilon(share.event, DELTA) == pytest.approx(379, abs=0.5)
    assert epsilon(share.event, DELTA) == pytest.approx(
        gdp_epsilon(math.sqrt(20 * 32) / 1.07, DELTA), rel=1e-6
    )


@pytest.mark.parametrize(
    ("users", "paper", "visits", "real"), [(866, 14.9745, 35, 622), (2136, 5.3372, 14, 279)]
)
def test_federated_emnist_as_published_and_for_a_curator_that_sees_the_visits(
    users, paper, visits, real
):
    """Round robin makes the mean number of visits, rounded, that of most users."""
    cfg = published(subsets=users, steps=30_000)
    plan = WGAN.plan(cfg, a_task(users, 100 * users), Budget(10.0, DELTA, unit="user"))
    user = next(share for share in plan.parties if share.steps == visits)
    assert epsilon(user.paper_event, DELTA, "wor_bound") == pytest.approx(paper, abs=1e-4)
    assert {share.steps for share in plan.parties} <= {visits - 1, visits, visits + 1}
    assert epsilon(user.event, DELTA) == pytest.approx(real, abs=1)


@pytest.mark.parametrize(("steps", "sigma"), [(20, 2.83), (300, 10.95)])
def test_round_robin_makes_visits_countable(steps, sigma):
    """One visit each with noise 2.83, or fifteen with 10.95, cost ten."""
    cfg = GSWGANConfig(subsets=20, steps=steps)
    share = WGAN.plan(cfg, a_task(), BUDGET).parties[0]
    assert share.noise_multiplier * math.sqrt(32) == pytest.approx(sigma, abs=0.015)
    assert 9.99 < epsilon(share.event, DELTA) <= 10.0


@pytest.mark.parametrize("order", ["round_robin", "random"])
@pytest.mark.parametrize("unit", ["record", "user"])
@pytest.mark.parametrize("parties", [1, 3])
def test_calibration_meets_the_budget_for_whoever_is_visited_most(order, unit, parties):
    cfg = GSWGANConfig(subsets=9, steps=40, per_round=2, order=order)
    stage = a_task(parties)
    plan = WGAN.plan(cfg, stage, Budget(3.0, DELTA, unit=unit))
    costs = [epsilon(share.event, DELTA) for share in plan.parties]
    assert max(costs) == pytest.approx(3.0, rel=1e-6)
    schedule = cfg.schedule(stage)
    for share in plan.parties:
        counts = schedule.visits[share.party]
        hits = sum(counts.values()) if unit == "user" else max(counts.values())
        mu = math.sqrt(hits) / share.noise_multiplier
        assert epsilon(share.event, DELTA) == pytest.approx(gdp_epsilon(mu, DELTA), rel=1e-6)


def test_the_published_count_is_no_budget_a_party_accepts():
    with pytest.raises(UserError, match=r"gs_wgan.noise=1\.0\d+.*epsilon=3[78]\d"):
        WGAN.plan(GSWGANConfig(), a_task(), Budget(10.0, DELTA, accounting="wor_bound"))


# The counting test: an attack on the published count, in the worst case that its theorem allows.
# The target's subset answers +C along one direction where without the target it answers -C, like
# all others. Count the steps whose mean answer lies far above -C.

K, T, B, SIGMA = 1000, 20_000, 32, 1.07
SHIFT = math.sqrt(B) / SIGMA  # from -C to +C, in deviations of the mean's noise 2 C sigma / sqrt(B)
FAR = 4.5


def chances() -> tuple[float, float]:
    """That a step lies far above, with the target and without."""
    without = stats.norm.sf(FAR)
    return stats.norm.sf(FAR - SHIFT) / K + without * (1 - 1 / K), without


def lower_bound(at_least: int) -> float:
    """The epsilon that a test by this count refutes, exactly: numbers of steps are binomial."""
    with_target, without = (stats.binom.sf(at_least - 1, T, p) for p in chances())
    return math.log((with_target - DELTA) / without)


def test_an_exact_attack_refutes_ten_and_not_the_joint_order():
    joint = epsilon(WGAN.plan(published(), a_task(), BUDGET).parties[0].views[JOINT_ORDER], DELTA)
    assert lower_bound(10) == pytest.approx(42, abs=0.5)
    assert 10 < lower_bound(5) < lower_bound(10) < joint


def test_a_simulated_attack_refutes_ten():
    """With 99.5% confidence, from simulated runs alone."""
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
def test_the_same_attack_reaches_our_count_and_never_exceeds_it(steps):
    """By turns: add up what the target's subset answers, and look whether the sum is large."""
    share = WGAN.plan(GSWGANConfig(subsets=K, steps=steps), a_task(), BUDGET).parties[0]
    apart = math.sqrt(steps / K) / share.noise_multiplier  # of the sums, in deviations
    thresholds = np.linspace(-2, 12, 2801)
    with_target, without = stats.norm.sf(thresholds - apart), stats.norm.sf(thresholds)
    useful = with_target > 2 * DELTA
    refuted = np.log((with_target[useful] - DELTA) / without[useful]).max()
    assert 9.99 < refuted <= 10 * (1 + 1e-9)


# Critics at home


@pytest.fixture
def job(tmp_path):
    tiny.forget()
    made = tiny.tiny_job("gs_wgan", tmp_path / "run", "together")
    yield made
    tiny.forget()


def ask(job, party: int, request: Request):
    """One request, answered by a process that has just been started."""
    tiny.forget()
    return session.party_answer(job.text(), party, 0, request)


def visit(job, number: int, seed: int = 0) -> Request:
    stage, cfg = job.plan(0).stage, job.config
    net = new_generator(
        cfg.generator, cfg.depth, cfg.code, len(stage.classes), stage.data, seed, number
    )
    return Request(VISIT, number, {"theta": flat(net)}, {"seed": 0})


def rounds_of(job, party: int) -> list[int]:
    schedule = job.config.schedule(job.plan(0).stage)
    return [n for n in range(job.config.steps) if schedule.at(n, party)]


def critics(job, party: int) -> Path:
    return job.party_folder(party) / "stage-0" / "critics"


def test_asking_again_gives_the_same_answer_whatever_came_after(job):
    party, (first, second, *_) = next(
        (p, rounds) for p in range(3) if len(rounds := rounds_of(job, p)) > 1
    )
    known = ask(job, party, visit(job, first))
    ask(job, party, visit(job, second))
    again = ask(job, party, visit(job, first))
    assert torch.equal(known.arrays["gradients"], again.arrays["gradients"])
    assert known.entries == again.entries


def test_a_lost_folder_is_refused_and_no_noise_is_drawn_twice(job):
    schedule = job.config.schedule(job.plan(0).stage)
    number, late = next(
        (n, v) for n, visits in enumerate(schedule.rounds) for v in visits if v.number == 1
    )
    first = next(
        n for n in range(number) for v in schedule.at(n, late.party) if v.part == late.part
    )
    ask(job, late.party, visit(job, first))
    for file in critics(job, late.party).glob("*"):
        file.unlink()
    with pytest.raises(UserError, match="trained for 0 visits"):
        ask(job, late.party, visit(job, number))
    ask(job, late.party, visit(job, first))
    for file in critics(job, late.party).glob("*-visit-*"):
        file.unlink()
    ask(job, late.party, visit(job, first))  # made again from the critic as it was
    ask(job, late.party, visit(job, number))
    for file in critics(job, late.party).glob("*-visit-*"):
        file.unlink()
    with pytest.raises(UserError, match="has gone on"):
        ask(job, late.party, visit(job, first))


def test_other_requests_for_a_visit_are_charged_until_the_party_refuses(job):
    (first, *_) = rounds_of(job, 1)

    def insist() -> None:
        for seed in range(20):
            ask(job, 1, visit(job, first, seed))

    with pytest.raises(BudgetExceeded):
        insist()
    spent = total(read_entries(job.party_folder(1) / "ledger.jsonl"))
    assert epsilon(spent, job.budget.delta, "rdp") <= job.budget.epsilon * (1 + SLACK)


def test_critics_lie_in_a_folder_of_the_party_alone_until_the_end(job, here):
    tiny.release(job, here)
    left = list(critics(job, 0).iterdir())
    assert left
    assert critics(job, 0).stat().st_mode & 0o777 == 0o700
    session.destroy_keys(job)
    assert not list(critics(job, 0).iterdir())


def test_a_warm_critic_says_nothing_and_costs_nothing(job):
    answer = ask(job, 0, Request(WARM, 0, numbers={"seed": 0}))
    assert (answer.arrays, answer.numbers, answer.entries) == ({}, {}, ())
    assert not (job.party_folder(0) / "ledger.jsonl").exists()


@pytest.mark.usefixtures("no_noise")
def test_a_second_run_finds_the_warm_critics_and_releases_the_same(here, tmp_path, monkeypatch):
    """Also with another budget: what is kept does not depend on it. Other settings find nothing.
    Without noise, which is another for other settings, be it for where things are kept."""
    warmed: list[object] = []
    real = Critic.warm_up

    def counted(critic: Critic, *arguments) -> None:
        warmed.append(critic.key)
        real(critic, *arguments)

    monkeypatch.setattr(Critic, "warm_up", counted)

    def run(name: str, epsilon: float = 10.0, **changes):
        made = tiny.tiny_job("gs_wgan", tmp_path / name, "together", changes)
        world = replace(made.world, data_dir=str(tmp_path / "data"))
        made = replace(made, world=world, budget=replace(made.budget, epsilon=epsilon))
        tiny.release(made, here)
        return {k: v for k, v in tiny.outputs(made.out).items() if k.startswith("releases/")}

    alone = run("alone")
    first_time = len(warmed)
    assert first_time == 3  # each of three parties has a subset
    kept = run("kept", keep=True)
    assert len(warmed) == 2 * first_time
    again = run("again", keep=True)
    run("another budget", 1.0, keep=True)
    assert len(warmed) == 2 * first_time
    assert alone == kept == again
    run("warmer", keep=True, warm=3)
    assert len(warmed) == 3 * first_time
    for party in (tmp_path / "data" / "private").iterdir():
        assert party.stat().st_mode & 0o777 == 0o700


# The generator at the curator


def test_weights_travel_as_one_vector():
    data = datasets.find("mnist").info
    for kind in ("dcgan", "resnet"):
        net, other = (new_generator(kind, 8, 4, 3, data, key) for key in "ab")
        fill(other, flat(net))
        for name, value in net.state_dict().items():
            assert torch.equal(other.state_dict()[name], value)


def test_the_curator_steps_along_the_gradient_and_keeps_a_moving_average():
    data = datasets.find("mnist").info
    net = new_generator("dcgan", 8, 4, 3, data, "net")
    naive = new_generator("dcgan", 8, 4, 3, data, "net")
    adam = torch.optim.Adam(naive.parameters(), 0.01, betas=(0.5, 0.9))
    curator = GeneratorTrainer(net, rate=0.01, average=0.6)
    mean = [torch.zeros_like(p) for p in naive.parameters()]
    generator = torch.Generator().manual_seed(0)
    for step in range(4):
        codes = torch.randint(0, 2, (5, 4), generator=generator).float()
        labels, slopes = (
            torch.tensor([0, 1, 2, 0, 1]),
            torch.randn(5, 1, 28, 28, generator=generator),
        )
        curator.step(step, codes, labels, slopes)
        loss = (naive(codes, labels) * slopes).sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
        keep = min(1 - 1 / (step + 1), 0.6)
        mean = [
            keep * m + (1 - keep) * p.detach()
            for m, p in zip(mean, naive.parameters(), strict=True)
        ]
    for found, expected in zip(curator.mean.parameters(), mean, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("no_noise")
def test_the_released_generator_may_learn_at_another_rate_than_critics(here, tmp_path):
    """Said or unsaid, the same rate makes the same images; a smaller one stays nearer the start."""

    def images(name: str, **changes) -> torch.Tensor:
        made = tiny.tiny_job(
            "gs_wgan", tmp_path / name, "together", {"rate": 0.01, "warm": 0, **changes}
        )
        tiny.release(made, here)
        return RunDirectory(tmp_path / name).load_release(made.name, 1).images

    unsaid, said = images("unsaid"), images("said", generator_rate=0.01)
    still = images("still", generator_rate=1e-12)
    small = images("small", generator_rate=0.001)
    assert torch.equal(unsaid, said)
    assert 0 < (small - still).abs().mean() < (unsaid - still).abs().mean()
