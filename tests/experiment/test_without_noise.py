"""`METHOD.noise=none`: it selects a reference by another name, and errors say what it means."""

from __future__ import annotations

import math

import pytest
import yaml

from fedsynth.core.errors import UserError
from fedsynth.experiment.config import assemble, budget, parse_overrides, resolve
from fedsynth.experiment.experiment import Experiment

TINY = ("scenario=classification", "data=shapes")


def config_of(*words: str, preset: str = "smoke"):
    return resolve(parse_overrides([*TINY, f"preset={preset}", *words]))


def test_noise_none_runs_the_reference_under_its_own_name():
    config = config_of("method=psg,dp_merf", "psg.noise=none", "psg.spc=3", "epsilon=1,10")
    assert config.run.method == ("psg_without_noise", "dp_merf")
    assert list(config.methods) == ["psg_without_noise", "dp_merf"]
    assert config.methods["psg_without_noise"].spc == 3
    assert budget(config, "psg_without_noise", 1.0).epsilon == math.inf
    names = [job.name for job in Experiment.of(config).jobs]
    assert sorted(names) == [
        "dp_merf-eps1-seed0",
        "dp_merf-eps10-seed0",
        "psg_without_noise-epsinf-seed0",
    ]


def test_the_stored_configuration_gives_the_same_run():
    config = config_of("method=gs_wgan", "gs_wgan.noise=none")
    stored = yaml.safe_load(yaml.safe_dump(config.as_dict()))
    about = stored.pop("about")
    assert "gs_wgan" not in stored
    assert assemble([stored], None, about) == config


def test_both_forms_run_side_by_side_with_one_set_of_settings():
    config = config_of(
        "method=psg,psg_without_noise", "psg.spc=3", "psg_without_noise.runs=1", "epsilon=10"
    )
    mine, theirs = config.methods.values()
    assert (mine.spc, theirs.spc, theirs.runs) == (3, 3, 1)
    assert mine.runs != 1


def test_the_last_word_counts_and_a_noise_of_its_own_stays(tmp_path):
    file = tmp_path / "quiet.yaml"
    file.write_text(
        "about: test\ndata: shapes\nparties: 1\npartition: iid\nstages: together\n"
        "method: [ldpdc]\nldpdc: {noise: none}\n"
    )
    assert resolve({"scenario": str(file)}).run.method == ("ldpdc_without_noise",)
    louder = resolve({"scenario": str(file), "ldpdc": {"noise": 1.5}, "epsilon": 10})
    assert louder.run.method == ("ldpdc",)
    assert louder.methods["ldpdc"].noise == 1.5


def test_settings_of_a_budget_are_those_of_epsilon_10():
    config = config_of("method=psg", "psg.noise=none", preset="paper")
    (job,) = Experiment.of(config).jobs
    assert job.config.runs == 1000
    assert job.plans[0].parties[0].without_noise


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("method=psg", "psg.noise=none", "epsilon=1"), r"epsilon=1.*Leave epsilon out"),
        (("method=psg_without_noise", "epsilon=1"), r"epsilon is infinite"),
        (("method=psg", "psg.noise=none", "accounting=rdp"), r"accounting means nothing"),
        (("method=psg", "psg.noise=0"), r"psg.noise=none runs psg without noise"),
        (("method=gs_wgan", "gs_wgan.noise=0.0"), r"gs_wgan.noise=none runs gs_wgan"),
        (("method=psg", "psg.noise=off"), r"psg.noise=none"),
        (("method=dp_merf", "psg.noise=none"), r"does not name psg. Give method=psg"),
        (("method=all", "psg.noise=none"), r"does not name psg"),
        (("method=upper_bound", "upper_bound.noise=none"), r"is a reference and adds no noise"),
        (("method=psg", "psg.noise=nothing"), r"unknown key 'psg.noise'"),
        (("method=gs_wgan", "gs_wgan.noise=nothing"), r"gs_wgan.noise='nothing'"),
        (("method=psg_without_noize",), r"unknown method 'psg_without_noize'"),
    ],
)
def test_errors_say_what_is_allowed(words, message):
    with pytest.raises(UserError, match=message):
        Experiment.of(config_of(*words))
