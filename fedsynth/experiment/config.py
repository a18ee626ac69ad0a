"""From a command line to a checked plan of the run: scenario file, preset and overrides, in layers.

The layers of a run's keys: defaults < the scenario file < its preset < the command line. Those of a
method: its published defaults < its own preset < the scenario's section < the scenario's preset <
the command line. `preset=paper` adds nothing, so what runs is what was published.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import yaml

from fedsynth.core.enums import Accounting, Preset
from fedsynth.core.errors import UserError, allowed, nearest, unknown
from fedsynth.core.plugins import absolute, broken
from fedsynth.core.settings import build, canonical, plain
from fedsynth.core.types import Budget
from fedsynth.evaluation.config import EvaluationConfig, merge_layers
from fedsynth.experiment import user_partition
from fedsynth.experiment.config_check import check_config
from fedsynth.experiment.method_selection import (
    GROUPS,
    candidates,
    members,
    suited,
    takes_turns,
)
from fedsynth.experiment.run_config import RunConfig
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.experiment.scenario_files import read_yaml, scenario_file
from fedsynth.experiment.without_noise import (
    refuse_budget,
    section_names,
    selected,
    without_noise_key,
)
from fedsynth.methods.registry import is_method, load_plugins, method, method_names

INFINITY = float("inf")
Item = TypeVar("Item")


RUN_KEYS = tuple(f.name for f in dataclasses.fields(RunConfig))
SCENARIO_KEYS = tuple(f.name for f in dataclasses.fields(ScenarioConfig))
DATA_KEYS = ("data", "partition", "parties", "stages")  # that a scenario's sentence speaks of
TEXT_KEYS = tuple(  # their values are taken as they are typed: a path may look like a number
    key
    for keys in (RunConfig, ScenarioConfig)
    for key, kind in typing.get_type_hints(keys).items()
    if kind in (str, str | None) or (isinstance(kind, type) and issubclass(kind, StrEnum))
)


@dataclass(frozen=True)
class ExperimentConfig:
    """A whole run, resolved and checked."""

    run: RunConfig
    scenario: ScenarioConfig
    evaluation: EvaluationConfig
    methods: Mapping[str, Any]  # name -> its settings
    about: str
    left_out: tuple[str, ...] = ()  # methods of the scenario that cannot handle this kind of data
    omitted: tuple[str, ...] = ()  # why methods of method=all or method=one_shot are not in it
    found: tuple[str, ...] = ()  # what data=emnist_users turned out to be, and what was tried

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as written to config.yaml: `resolve` reads them back."""
        evaluation = dataclasses.asdict(self.evaluation)
        values = {
            "about": self.about,
            **dataclasses.asdict(self.run),
            **dataclasses.asdict(self.scenario),
            "evaluation": evaluation,
        }
        for name, cfg in self.methods.items():
            values[name] = dataclasses.asdict(cfg)
        return {key: plain(value) for key, value in values.items()}


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words as nested values; a comma makes a list, YAML decides the types."""
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise UserError(f"{word!r} is not of the form key=value.")
        target = values
        *outer, last = key.split(".")
        for part in outer:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise UserError(f"{word!r}: {part!r} was given a value already.")
        if last in target:
            raise UserError(f"{key}= is given twice: give one of the two values.")
        target[last] = _value(key, text)
    return values


def _value(key: str, text: str) -> Any:
    if text and key in TEXT_KEYS:
        return text
    pieces = text.split(",") if "," in text and not text.lstrip().startswith(("[", "{")) else None
    if pieces is not None and not all(piece.strip() for piece in pieces):
        raise UserError(f"{key}={text} has an empty item: two commas, or one at an end.")
    try:
        if pieces is not None:
            return [_number_or(yaml.safe_load(piece)) for piece in pieces]
        return _number_or(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise UserError(f"{key}={text!r} cannot be read: {' '.join(str(error).split())}") from error


def _number_or(value: Any) -> Any:
    """YAML 1.1 reads 1e-5 as a text; a person means a number, in lists and mappings too."""
    if isinstance(value, Mapping):
        return {key: _number_or(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_number_or(item) for item in value]
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def resolve(overrides: Mapping[str, Any]) -> ExperimentConfig:
    """The whole run from command-line values: every key known, typed, within its limits."""
    overrides = with_plugins(overrides)
    path = scenario_file(str(overrides.get("scenario", RunConfig.scenario)))
    file = read_yaml(path)
    about = str(file.pop("about", ""))
    try:
        file = with_plugins(file, path.parent)
        presets = check_presets(file.pop("presets", None) or {})
        preset = str(overrides.get("preset", file.get("preset", "laptop")))
        chosen = chosen_methods(overrides, presets.get(preset, {}), file)
        for layer in (file, *presets.values()):
            check_layer(layer, chosen)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if paths := [*file.get("plugin", ()), *overrides.get("plugin", ())]:
        overrides["plugin"] = list(dict.fromkeys(paths))
    if preset not in tuple(Preset):
        raise UserError(
            f"preset={preset!r} is unknown.{nearest(preset, Preset)} Allowed: {', '.join(Preset)}."
        )
    layers, left_out = suited([file, presets.get(preset, {}), overrides])
    config = dataclasses.replace(assemble(layers, preset, about), left_out=tuple(left_out))
    refuse_budget(config.run.method, overrides)
    if any(overrides.get(key, file.get(key)) != file.get(key) for key in DATA_KEYS):
        config = dataclasses.replace(config, about=scenario_in_words(config.scenario))
    return config


def scenario_in_words(scenario: ScenarioConfig) -> str:
    """One sentence on the parties and their data, where that of the scenario file is not true."""
    parties = "One party" if scenario.parties == 1 else f"{scenario.parties:,} parties"
    if not scenario.parties:
        parties = "All users"
    one = scenario.parties == 1
    order = "" if one else (" one after another" if scenario.stages == "in_turn" else " at once")
    return (
        f"{parties} {'holds' if one else 'hold'} {Path(scenario.data).name}"
        f"{'' if one else f', divided by {scenario.partition},'} and "
        f"{'releases' if one else 'release'}{order}"
    )


def check_presets(presets: Any) -> dict[str, dict[str, Any]]:
    """The presets of a scenario file, each checked like the file itself."""
    if not isinstance(presets, Mapping):
        raise UserError(
            f"presets={presets!r}: presets holds one section each for {', '.join(Preset)}."
        )
    checked = {}
    for name, section in presets.items():
        if name not in tuple(Preset):
            raise unknown("preset", name, Preset)
        if not isinstance(section or {}, Mapping):
            raise UserError(f"presets.{name}={section!r}: a preset holds keys and values.")
        checked[str(name)] = {str(k): v for k, v in (section or {}).items()}
    return checked


def chosen_methods(*layers: Mapping[str, Any]) -> tuple[str, ...]:
    """The methods that the first layer with `method=` names, and those of groups among them."""
    named = next((layer["method"] for layer in layers if layer.get("method")), ())
    return candidates(build(RunConfig, {"method": named}).method)


def with_plugins(layer: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Load the plug-ins that a layer names, and make their paths absolute.

    Args:
        layer: Keys and values.
        folder: The folder that relative paths start from; default: the working directory.
    """
    if not layer.get("plugin"):
        return dict(layer)
    named = build(RunConfig, {"plugin": layer["plugin"]}).plugin
    paths = [str(absolute(path, folder or Path())) for path in named]
    load_plugins(paths)
    return {**layer, "plugin": paths}


def present_names(layer: Mapping[str, Any]) -> dict[str, Any]:
    """Replace former names of keys by the present ones, except in sections of methods, and take
    out `METHOD.noise=none`, which is no setting of a method."""
    layer = canonical(ScenarioConfig, canonical(RunConfig, without_noise_key(layer)))
    if isinstance(layer.get("evaluation"), Mapping):
        layer["evaluation"] = canonical(EvaluationConfig, layer["evaluation"], "evaluation")
    return layer


def check_layer(layer: Mapping[str, Any], methods: Collection[str] | None = None) -> None:
    """Check that each key of one layer is known, typed and within its limits.

    Args:
        layer: Keys and values.
        methods: The methods whose settings are checked, which imports them; default: all that the
            layer has a section for. A scenario file is checked for the methods that run only.
    """
    layer = present_names(layer)
    for key in layer:
        if key not in (*RUN_KEYS, *SCENARIO_KEYS, "evaluation") and not is_method(key):
            keys, names = sorted([*RUN_KEYS, *SCENARIO_KEYS, "evaluation"]), method_names()
            raise UserError(
                f"unknown key {key!r}.{nearest(key, [*keys, *names])} A method's keys are written "
                f"METHOD.KEY. {allowed(keys, 'fedsynth help keys')}"
            )
    build(RunConfig, {k: v for k, v in layer.items() if k in RUN_KEYS})
    build(ScenarioConfig, {k: v for k, v in layer.items() if k in SCENARIO_KEYS})
    build(EvaluationConfig, _section([layer], "evaluation"), "evaluation")
    for name in filter(is_method, layer):
        section = _section([layer], name)
        if methods is None or name in methods:
            build(method(name).Config, section, name)


def assemble(
    layers: Sequence[Mapping[str, Any]], preset: str | None, about: str
) -> ExperimentConfig:
    """Lay the layers over each other and check the result; `preset=None` adds no method presets."""
    merged: dict[str, Any] = {}
    given, layers = layers, [present_names(layer) for layer in layers]
    for layer in layers:
        merged.update(layer)
    merged = with_plugins(merged)
    for layer in layers:
        check_layer(layer, None if layer is layers[-1] else ())
    run = build(RunConfig, {k: v for k, v in merged.items() if k in RUN_KEYS})
    named = selected(run.method, given)
    run = dataclasses.replace(run, method=named, epsilon=_once(run.epsilon), seed=_once(run.seed))
    scenario, found = user_partition.resolve_source(
        build(ScenarioConfig, {k: v for k, v in merged.items() if k in SCENARIO_KEYS})
    )
    evaluation_values = merge_layers([_section([layer], "evaluation") for layer in layers], preset)
    evaluation = build(EvaluationConfig, evaluation_values, "evaluation")
    for name in ("method", "epsilon", "seed"):
        if not getattr(run, name):
            raise UserError(f"{name} is empty: give {name}=VALUE[,VALUE ...].")
    chosen: dict[str, Any] = {}
    for name in candidates(run.method):
        settings = dict(method(name).presets.get(preset or "", {}))
        if run.users_per_round and takes_turns(name):
            settings["per_round"] = run.users_per_round
        cls = method(name).Config
        for section in section_names(name):
            for layer in layers:
                settings |= canonical(cls, _section([layer], section), section)
        chosen[name] = build(cls, settings, name)
    config = _spread(ExperimentConfig(run, scenario, evaluation, chosen, about, found=found))
    check_config(config.run, config.scenario, config.evaluation)
    return config


def _spread(config: ExperimentConfig) -> ExperimentConfig:
    """Words for many methods in the place of the methods they stand for here."""
    run = config.run
    if not set(run.method) & set(GROUPS):
        return config
    budgets = {name: budget(config, name, run.epsilon[0]) for name in config.methods}
    kept, omitted = members(
        run.method, config.methods, scenario_stages(config.scenario)[0], budgets
    )
    if not kept:
        raise UserError(f"method={','.join(run.method)}: no method can be planned here.")
    chosen = {name: config.methods[name] for name in kept}
    named = dataclasses.replace(run, method=kept)
    omitted += tuple(f"{label} is left out: {why}." for label, why in broken().items())
    return dataclasses.replace(config, run=named, methods=chosen, omitted=omitted)


def _once(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Every item once: a job that is named twice is still one job."""
    return tuple(dict.fromkeys(items))


def _section(layers: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    section: dict[str, Any] = {}
    for layer in layers:
        part = {} if layer.get(name) is None else layer[name]
        if not isinstance(part, Mapping):
            raise UserError(f"{name}={part!r}: {name} holds keys; write {name}.KEY=VALUE.")
        section.update(part)
    return section


def budget(config: ExperimentConfig, name: str, epsilon: float) -> Budget:
    """The budget of one job; a non-private reference has no end to its spending."""
    run = config.run
    total = epsilon if method(name).private else INFINITY
    published = method(name).paper_convention
    accounting = published if run.accounting == Accounting.PAPER else run.accounting
    return Budget(total, run.delta, run.unit, run.relation, accounting)
