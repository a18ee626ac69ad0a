"""From command lines to checked runs: layers, grids, and every way to get them wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedsynth.core.enums import Preset
from fedsynth.core.errors import UserError
from fedsynth.evaluation.config import PRESETS as EVALUATIONS
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.config import budget, parse_overrides, resolve
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_files import scenario_files
from fedsynth.methods.registry import all_methods, method

BASE: dict[str, Any] = {"data": "shapes", "parties": 2, "method": ["ldpdc"], "epsilon": 10}


def scenario(folder: Path, **keys: Any) -> str:
    """A scenario file with these keys on top of a sound base."""
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**BASE, **keys}))
    return str(path)


def run_of(*words: str):
    return resolve(parse_overrides(words))


@pytest.mark.parametrize("name", scenario_files())
@pytest.mark.parametrize("preset", Preset)
def test_every_scenario_resolves_in_every_preset(name, preset):
    config = run_of(f"scenario={name}", f"preset={preset}")
    assert config.about
    assert set(config.methods) == set(config.run.method) <= set(all_methods())
    assert scenario_stages(config.scenario)


def test_layers_lie_over_each_other(tmp_path):
    """Method defaults, its preset, the file's section, the file's preset, the command line."""
    smoke, published = method("psg").presets["smoke"], method("psg").Config()
    path = scenario(
        tmp_path,
        method=["psg"],
        psg={"spc": 5, "batches": 6},
        seed=[3],
        presets={"smoke": {"psg": {"batches": 7}, "delta": 1e-4}},
    )
    at_smoke = run_of(f"scenario={path}", "preset=smoke", "psg.updates=9", "seed=4,5")
    psg = at_smoke.methods["psg"]
    assert (psg.spc, psg.batches, psg.updates, psg.runs) == (5, 7, 9, smoke["runs"])
    assert (at_smoke.run.delta, at_smoke.run.seed) == (1e-4, (4, 5))
    as_published = run_of(f"scenario={path}", "preset=paper").methods["psg"]
    assert (as_published.batches, as_published.runs) == (6, published.runs)


def test_a_protocol_with_a_preset_of_its_own_starts_from_that(tmp_path):
    """Networks and batches of a file belong to its protocol; a width applies to any."""
    cheap = {"nets": 3, "max_images": 70, "batch": 16, "width": 32}
    path = scenario(tmp_path, presets={"laptop": {"evaluation": cheap}})
    words = [f"scenario={path}", "evaluation.protocol=G", "evaluation.nets=2"]
    laptop = run_of(*words).evaluation
    own = EVALUATIONS["G"]["laptop"]
    assert (laptop.nets, laptop.batch, laptop.width) == (2, 0, 32)
    assert (laptop.suite_images, laptop.max_images) == (own["suite_images"], own["max_images"])
    assert run_of(*words, "preset=paper").evaluation == EvaluationConfig("G", nets=2)
    other = run_of(f"scenario={path}", "evaluation.protocol=D").evaluation
    assert (other.batch, other.nets, other.max_images) == (16, 3, 70)


def test_a_protocol_that_is_named_is_cut_for_large_sets_only(tmp_path):
    path = scenario(tmp_path, evaluation={"protocol": "S", "width": 32})
    for name, small in (("P", 100), ("D", 500)):
        laptop = run_of(f"scenario={path}", f"evaluation.protocol={name}").evaluation
        published = EvaluationConfig(name, width=32)
        assert laptop.schedule(small) == published.schedule(small)
        assert laptop.schedule(60_000).epochs < published.schedule(60_000).epochs


def test_a_preset_may_be_named_in_the_file_and_laptop_is_the_default(tmp_path):
    assert run_of(f"scenario={scenario(tmp_path)}").run.preset == "laptop"
    assert run_of(f"scenario={scenario(tmp_path, preset='smoke')}").run.preset == "smoke"


def test_lists_numbers_and_texts_of_the_command_line():
    values = parse_overrides(
        ["method=psg,dp_sgd", "epsilon=1,1e1", "delta=1e-5", "psg.spc=20", "out=2024,1"]
    )
    assert values == {
        "method": ["psg", "dp_sgd"],
        "epsilon": [1, 10.0],
        "delta": 1e-5,
        "psg": {"spc": 20},
        "out": "2024,1",
    }
    assert parse_overrides(["options.order=[1,0]", "address="]) == {
        "options": {"order": [1, 0]},
        "address": None,
    }


def test_what_is_named_twice_is_one_job():
    run = run_of("data=shapes", "method=ldpdc,ldpdc", "epsilon=1,1.0,10", "seed=0,0").run
    assert (run.method, run.epsilon, run.seed) == (("ldpdc",), (1.0, 10.0), (0,))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["metod=psg"],
            r"unknown key 'metod'\. Did you mean 'method'\?.*epsilon.*fedsynth help keys",
        ),
        (["psg.spcc=2"], r"unknown key 'psg\.spcc'\. Did you mean 'spc'\? Allowed: psg\.spc"),
        (["method=ldpdc", "psg.spcc=2"], r"unknown key 'psg\.spcc'"),
        (["pgs.spc=2"], r"unknown key 'pgs'\. Did you mean 'psg'"),
        (["psg=2"], r"psg=2: psg holds keys; write psg\.KEY=VALUE"),
        (["psg.spc=2", "psg.spc.x=2"], r"'spc' was given a value already"),
        (["evaluation.nets=-1"], r"evaluation.nets=-1 must be a whole number from 0 to"),
        (["evaluation.protocol=Q"], r"unknown protocol 'Q'.*Allowed: D, G, L, P"),
        (["method=pgs"], r"unknown method 'pgs'\. Did you mean 'psg'\? Allowed: .*dp_sgd"),
        (["method="], r"method= is empty: give a value"),
        (["method=[]"], r"method is empty: give method=VALUE"),
        (["epsilon=[]"], r"epsilon is empty"),
        (["scenario=split_minst"], r"unknown scenario 'split_minst'\. Did you mean 'split_mnist'"),
        (["scenario=no/such.yaml"], r"scenario='no/such\.yaml': there is no such file"),
        (["data=mnits"], r"unknown data set 'mnits'\. Did you mean 'mnist'"),
        (["partition=clases"], r"unknown partitioner 'clases'\. Did you mean 'classes'"),
        (["preset=smok"], r"preset='smok' is unknown\. Did you mean 'smoke'\? Allowed: smoke, la"),
        (["engine=rya"], r"engine='rya' is unknown\. Did you mean 'ray'\? Allowed: ray, inprocess"),
        (["parties=two"], r"parties='two' is not a whole number"),
        (["epsilon=0"], r"epsilon=0\.0 must be above 0"),
        (["epsilon=1,-1"], r"epsilon=-1\.0 must be above 0"),
        (["epsilon=ten"], r"epsilon='ten' is not a number"),
        (["epsilon=inf"], r"epsilon=inf: psg is a private method.*a reference: .*upper_bound"),
        (["delta=0"], r"delta=0\.0 must be above 0"),
        (["delta=1"], r"delta=1\.0 must be below 1"),
        (["parties=11"], r"10 classes cannot be cut into 11 equal blocks.*Allowed: 1, 2, 5, 10"),
        (["parties=3"], r"cannot be cut into 3"),
        (
            ["data=shapes", "partition=dirichlet", "options={alpha: 0.01}", "parties=10"],
            r"partitioner dirichlet leaves party \d without records.*Raise alpha",
        ),
        (
            ["partition=iid", "options.alpha=1"],
            r"partitioner iid has no options, but 'order'|'alpha'",
        ),
        (["partition=dirichlet", "options={alpha: [1]}"], r"alpha=\[1\] of partitioner dirichlet"),
        (["partition=dirichlet", "options={alpah: 1}"], r"unknown option.*'alpah'.*'alpha'"),
        (["holdout=1.5"], r"holdout=1\.5 must be a fraction"),
        (["holdout=nan"], r"holdout='?nan'? is not a number"),
        (["workers=0"], r"workers=0 must be at least 1"),
        (["num_gpus=-1"], r"num_gpus=-1\.0 must be at least 0"),
        (["timeout=0"], r"timeout=0\.0 must be above 0"),
        (["noise_seed=-1"], r"noise_seed=-1 must be at least 0"),
        (["seed=1.5"], r"seed=1\.5 is not a whole number"),
        (["seed"], r"'seed' is not of the form key=value"),
        (["=3"], r"'=3' is not of the form key=value"),
        (["seed=[1"], r"seed='\[1' cannot be read"),
        (["data=file:nowhere.npz"], r"data=file:nowhere\.npz: there is no file nowhere\.npz"),
    ],
)
def test_bad_words_are_named(words, message):
    with pytest.raises(UserError, match=message) as caught:
        run_of(*words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metod: [psg]", r"mine\.yaml: unknown key 'metod'\. Did you mean 'method'"),
        ("presets: {smok: {}}", r"mine\.yaml: unknown preset 'smok'\. Did you mean 'smoke'"),
        ("presets: [smoke]", r"mine\.yaml: presets=\['smoke'\]: presets holds one section each"),
        ("presets: {smoke: 3}", r"mine\.yaml: presets\.smoke=3: a preset holds keys and values"),
        ("presets: {paper: {epsilonn: 3}}", r"mine\.yaml: unknown key 'epsilonn'\. Did you mean"),
        (
            "method: [psg]\npresets: {paper: {psg: {spcc: 3}}}",
            r"mine\.yaml: unknown key 'psg\.spcc'",
        ),
        ("psg: 3", r"mine\.yaml: psg=3: psg holds keys"),
        ("parties: many", r"mine\.yaml: parties='many' is not a whole number"),
        ("evaluation: [1]", r"mine\.yaml: evaluation=\[1\]: evaluation holds keys"),
        ("method: [psg", r"mine\.yaml is not valid YAML"),
        ("- psg", r"mine\.yaml must hold keys and values"),
        (
            "seed: 1\ndata: shapes\nseed: 2",
            r"mine\.yaml is not valid YAML: the key 'seed' is given twice",
        ),
        ("\udcff", r"mine\.yaml is not valid YAML"),
        ("about: nothing but this", r"method is empty: give method=VALUE"),
    ],
)
def test_a_scenario_file_with_a_mistake_is_named_with_it(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=message) as caught:
        run_of(f"scenario={path}")
    assert "\n" not in str(caught.value)


def test_budgets_and_their_accounting():
    config = run_of("data=shapes", "method=ldpdc,upper_bound", "accounting=paper", "delta=1e-4")
    mine = budget(config, "ldpdc", 2.0)
    assert (mine.epsilon, mine.delta) == (2.0, 1e-4)
    assert mine.accounting == method("ldpdc").paper_convention
    assert budget(config, "upper_bound", 2.0).epsilon == float("inf")
