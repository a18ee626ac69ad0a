"""The defaults of each paper's methods are its published settings, number by number.

The numbers are those of the papers and of their programs; where the two disagree, of the program.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.methods.pate.datalens.parameters import DataLensParameters
from fedsynth.methods.registry import method


def job(words: str) -> Job:
    """The only job of a command."""
    (only,) = Experiment.of(resolve(parse_overrides(words.split()))).jobs
    return only


def has(config: Any, **values: Any) -> None:
    """Assert that the settings hold these values."""
    assert {name: getattr(config, name) for name in values} == values


# Chen et al. 2022: PSG

PAPER = "scenario=classification preset=paper"


@pytest.mark.parametrize("name", ["psg", "psg_prior"])
@pytest.mark.parametrize(("epsilon", "runs"), [(1, 200), (10, 1000)])
def test_psg_has_as_many_runs_as_published_for_the_budget(name, epsilon, runs):
    made = job(f"{PAPER} method={name} epsilon={epsilon}")
    has(made.config, runs=runs, batches=10, batch=256, clip=0.1, width=128, inner_set="own")
    assert made.config.outer_inner == (10, 50)
    assert made.plan(0).parties[0].steps == runs * 10 * 10


def test_psg_at_epsilon_10_has_the_published_noise():
    share = job(f"{PAPER} method=psg epsilon=10").plan(0).parties[0]
    assert share.steps == 100_000
    assert share.noise_multiplier == pytest.approx(0.9657, abs=2e-4)


@pytest.mark.parametrize(("spc", "outer_inner"), [(1, (1, 1)), (20, (20, 25)), (50, (50, 10))])
def test_psg_takes_outer_and_inner_steps_from_the_number_of_images(spc, outer_inner):
    assert job(f"{PAPER} method=psg epsilon=1 psg.spc={spc}").config.outer_inner == outer_inner


@pytest.mark.parametrize("epsilon", [1, 10])
def test_class_incremental_psg_has_200_runs_at_any_budget(epsilon):
    made = job(f"scenario=split_mnist preset=paper method=psg epsilon={epsilon}")
    has(made.config, runs=200, spc=10)
    assert made.plan(0).parties[0].steps == 20_000


def test_a_number_of_runs_that_is_given_stays():
    assert job(f"{PAPER} method=psg epsilon=10 psg.runs=3").config.runs == 3


def test_the_comparison_is_judged_and_counted_as_in_table_1():
    config = resolve(parse_overrides([*PAPER.split(), "method=psg"]))
    has(config.evaluation, protocol="P", width=128, nets=0, max_images=0, batch=0)
    assert config.evaluation.repetitions == 3
    assert config.run.accounting == "paper"


def test_class_incremental_learning_is_compared_with_dp_sgd_and_dp_merf():
    config = resolve(parse_overrides(["scenario=split_mnist", "preset=paper"]))
    assert {"psg", "dp_sgd", "dp_merf"} <= set(config.run.method)
    has(config.methods["dp_sgd"], epochs=10, batch=256, clip=0.1, learning_rate=0.01)


# Chen et al. 2020: GS-WGAN


def test_gs_wgan_trains_the_published_networks_on_the_published_schedule():
    config = job(f"{PAPER} method=gs_wgan epsilon=400 gs_wgan.noise=1.07").config
    has(config, generator="resnet", subsets=1000, steps=20_000, warm_steps=2000, batch=32)
    has(config, critic_steps=5, learning_rate=1e-4, penalty=10.0, latent=10, clip=1.0, width=64)


def test_users_are_selected_as_published():
    config = resolve(parse_overrides(["scenario=emnist_users", "preset=paper", "source=virtual"]))
    assert config.scenario.options == {"chosen": "high", "accuracy": 0.939}
    has(config.methods["gs_wgan"], steps=30_000, noise=1.07, generator="resnet")


def test_the_debugging_task_fits_its_budget_with_few_users():
    words = "scenario=emnist_debug preset=paper source=virtual parties=40"
    for plan in job(words).plans:
        assert max(share.steps for share in plan.parties) > 0


# Wang et al. 2021: DataLens


@pytest.mark.parametrize(
    ("data", "epsilon", "expected"),
    [
        ("mnist", 1, (4000, 200, 5000.0, 0.7, 50, 10, 1e-5)),
        ("mnist", 10, (4000, 300, 800.0, 0.2, 50, 10, 1e-5)),
        ("fashion_mnist", 1, (4000, 200, 5000.0, 0.9, 50, 10, 1e-5)),
        ("fashion_mnist", 10, (4000, 350, 1000.0, 0.27, 64, 10, 1e-5)),
        ("celeba_gender", 1, (6000, 700, 9000.0, 0.85, 100, 30, 1e-5)),
        ("celeba_gender", 10, (6000, 500, 700.0, 0.12, 100, 30, 0.0)),
        ("celeba_hair", 1, (8000, 700, 9000.0, 0.9, 100, 30, 1e-5)),
        ("celeba_hair", 10, (4000, 500, 700.0, 0.25, 100, 30, 0.0)),
    ],
)
def test_datalens_has_the_published_teachers_votes_and_noise(data, epsilon, expected):
    made = job(f"{PAPER} method=datalens epsilon={epsilon} data=mnist")
    config = method("datalens").Config().published_for(data, epsilon)
    has(made.config, batch=30, teacher_steps=2, step_size=1e-3, learning_rate=1e-3)
    published = (config.teachers, *_published(data, epsilon), config.pretraining, config.clip)
    assert published == expected


def _published(data: str, epsilon: float) -> tuple[Any, ...]:
    from fedsynth.methods.pate.datalens.config import published_setting

    known = published_setting(data, epsilon)
    return known.entries, known.sigma, known.beta, known.latent


@pytest.mark.parametrize(("epsilon", "rounds", "printed"), [(1, 86, 0.99571), (10, 109, 9.96889)])
def test_datalens_stops_after_the_published_rounds(epsilon, rounds, printed):
    made = job(f"{PAPER} method=datalens epsilon={epsilon} data=mnist")
    stage = made.plan(0).stage
    parameters = DataLensParameters.of(made.config, stage, made.budget)
    assert (parameters.rounds, parameters.images) == (rounds, 15)
    event = made.plan(0).parties[0].paper_event or made.plan(0).parties[0].event
    assert made.paper_epsilon(event) == pytest.approx(printed, abs=2e-4)


# Zheng and Li: LDPDC and NDPDC


@pytest.mark.parametrize(
    ("name", "data", "epsilon"),
    [
        ("ndpdc", "mnist", 6.1144),
        ("ndpdc", "fashion_mnist", 5.4427),
        ("ldpdc", "mnist", 1.1000),
        ("ldpdc", "fashion_mnist", 1.0588),
    ],
)
def test_condensation_at_its_defaults_costs_what_is_printed(name, data, epsilon):
    made = job(f"{PAPER} data={data} method={name} epsilon=10 {name}.noise=1")
    has(made.config, spc=50, group=50)
    if name == "ndpdc":
        has(made.config, iterations=10_000, image_learning_rate=1.0, clip=1.0, width=128)
    share = made.plan(0).parties[0]
    assert made.paper_epsilon(share.paper_event or share.event) == pytest.approx(epsilon, abs=1e-3)


# Harder et al. 2021: DP-MERF, as compared with


@pytest.mark.parametrize(("data", "scale"), [("mnist", 105), ("fashion_mnist", 127)])
def test_dp_merf_has_the_published_features_and_schedule(data, scale):
    made = job(f"{PAPER} data={data} method=dp_merf epsilon=10")
    has(made.config, features=1000, latent=5, steps=3000, gen_batch=100, learning_rate=0.01)
    assert made.config.squared_length(made.plan(0).stage.data) == scale
    assert isinstance(made.scenario, ScenarioConfig)
