"""The proposal that a server sends: a method, its settings, the wanted budget and the public facts.

It names no file, folder, noise seed or device of a party. Those come from the party's own policy.
From both the party makes a job of its own, whose plan and cost it computes by itself. A proposal of
another version of fedsynth is refused.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedsynth.core.device import AUTO, resolved_device
from fedsynth.core.enums import SecureSum
from fedsynth.core.errors import Refusal, Refused, UserError, allowed, nearest
from fedsynth.core.settings import build, setting
from fedsynth.core.types import Budget
from fedsynth.core.version import own_version
from fedsynth.data.formats.npz import PREFIX, public_name
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.job import Job
from fedsynth.experiment.scenario_config import ScenarioConfig, dataset_info
from fedsynth.methods.registry import load_plugins
from fedsynth.methods.registry import method as find_method
from fedsynth.privacy.policy import PartyPolicy, PolicyData

MAX_DEPTH = 30  # of brackets in a proposal
_NOT_PROPOSED = ("data_dir",)  # keys of a scenario that are the party's own


@dataclass(frozen=True)
class ProposedBudget:
    """The wanted budget, with the types and limits of its numbers."""

    epsilon: float = setting(math.nan, "epsilon", above=0, finite=False)
    delta: float = setting(math.nan, "delta", above=0, below=1)
    unit: str = setting("record", "unit of privacy")
    relation: str = setting("add_remove", "neighbouring relation")
    accounting: str = setting("pld", "accountant of the calibration")


@dataclass(frozen=True)
class Proposal:
    """A proposal whose form is valid; nothing in it is believed."""

    method: str = setting("", "method")
    settings: dict[str, Any] = setting(None, "all settings of the method")
    budget: dict[str, Any] = setting(None, "wanted budget")
    seed: int = setting(0, "public seed", at_least=0, at_most=2**63 - 1)
    scenario: dict[str, Any] = setting(None, "public part of the scenario")
    secure_sum: str = setting(SecureSum.IDEAL.value, "secure sum", choices=tuple(SecureSum))
    version: str = setting("", "version of fedsynth at the server, which is that of the party")


def proposal_text(job: Job) -> str:
    """The proposal of a job, as the server sends it."""
    scenario = dataclasses.asdict(job.scenario)
    for key in _NOT_PROPOSED:
        scenario.pop(key)
    fields = {
        "method": job.method,
        "settings": job.settings,
        "budget": dataclasses.asdict(job.budget),
        "seed": job.seed,
        "scenario": {**scenario, "data": public_name(job.scenario.data)},
        "secure_sum": job.secure_sum,
        "version": own_version(),
    }
    return json.dumps(fields, sort_keys=True)


def read_proposal(text: str) -> Proposal:
    """Read a proposal strictly.

    Raises:
        Refused: It is not a proposal; names the key and what is allowed.
    """
    if _depth(text) > MAX_DEPTH:
        raise _refused(f"a proposal nests at most {MAX_DEPTH} brackets.")
    try:
        fields = json.loads(text, parse_constant=_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _refused(f"the proposal is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise _refused("a proposal is a JSON object.")
    if fields.get("version", own := own_version()) != own:
        raise Refused(
            Refusal.POLICY,
            f"version={str(fields['version'])[:40]!r} of fedsynth is proposed; this party runs "
            f"{own} and answers this version only, because another one may plan and count "
            "otherwise. Install the same version on both sides.",
        )
    names = [f.name for f in dataclasses.fields(Proposal)]
    for name in fields:
        if name not in names:
            raise _refused(f"unknown key {name!r}.{nearest(name, names)} {allowed(names)}")
    if missing := [name for name in names if name not in fields]:
        raise _refused(f"the proposal states no {missing[0]}.")
    proposal: Proposal = _built(Proposal, fields)
    return proposal


def party_job(policy: PartyPolicy, proposal: Proposal) -> Job:
    """The job that a party makes of a proposal, from its own policy and facts.

    Args:
        policy: The party's policy, with absolute paths.
        proposal: What the server wants.

    Raises:
        Refused: The proposal is not valid, or the policy does not allow it.
        UserError: The party's own configuration cannot be used.
    """
    load_plugins(policy.plugins)
    own = own_scenario(policy.data)
    _check_scenario(policy, own, _built(ScenarioConfig, proposal.scenario, "scenario"))
    scenario = dataclasses.replace(own, stages=proposal.scenario.get("stages", own.stages))
    wanted = _built(ProposedBudget, proposal.budget, "budget")
    if math.isnan(wanted.epsilon) or math.isnan(wanted.delta):
        raise _refused("the proposal's budget states no epsilon, or no delta.")
    try:
        method = find_method(proposal.method)
        budget = Budget(**dataclasses.asdict(wanted))
    except (UserError, ValueError):
        names = ", ".join(policy.methods)
        raise _refused(f"method, unit or relation is unknown. Methods here: {names}.") from None
    policy.check_job(
        proposal.method,
        private=method.private,
        kind=str(dataset_info(scenario).kind),
        budget=budget,
        secure_sum=proposal.secure_sum,
    )
    _built(method.Config, proposal.settings, proposal.method)
    return Job(
        proposal.method,
        proposal.settings,
        budget,
        proposal.seed,
        scenario,
        EvaluationConfig(),
        "",
        policy.noise_seed,
        str(resolved_device(AUTO)) if policy.device == AUTO else policy.device,
        SecureSum(proposal.secure_sum),
        policy.plugins,
    )


def own_scenario(data: PolicyData) -> ScenarioConfig:
    """The scenario of a party's own data."""
    values = dataclasses.asdict(data)
    name, file, place = values.pop("name"), values.pop("file"), values.pop("folder")
    values.pop("records")
    values |= {"data": f"{PREFIX}{file}" if file else name, "data_dir": place}
    return build(ScenarioConfig, values, "data")


def _check_scenario(policy: PartyPolicy, own: ScenarioConfig, wanted: ScenarioConfig) -> None:
    """Refuse other data than the party's: nothing that a proposal names is looked up."""
    for f in dataclasses.fields(ScenarioConfig):
        if f.name in (*_NOT_PROPOSED, "stages"):
            if getattr(wanted, f.name) is not None and f.name in _NOT_PROPOSED:
                raise _refused(f"scenario.{f.name} is the party's own matter.")
            continue
        theirs = getattr(wanted, f.name)
        ours = policy.data.name if f.name == "data" else getattr(own, f.name)
        if (theirs or None) != (ours or None):
            raise Refused(
                Refusal.POLICY,
                f"scenario.{f.name}={theirs!r}: this party answers from {f.name}={ours!r} only.",
            )


def _built(cls: type[Any], values: Mapping[str, Any], path: str = "") -> Any:
    """`core.settings.build`, whose errors name nothing but the proposal's own keys and values."""
    try:
        return build(cls, values, path)
    except UserError as error:
        raise _refused(str(error)) from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise _refused(f"the proposal's {path or 'keys'} have values of the wrong type.") from None


def _refused(text: str) -> Refused:
    return Refused(Refusal.REQUEST, text)


def _constant(name: str) -> float:
    if name != "Infinity":
        raise ValueError(f"{name} is not a number")
    return math.inf


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _depth(text: str) -> int:
    """The deepest nesting of brackets, those inside of texts included."""
    depth = deepest = 0
    for letter in text:
        if letter in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "]}":
            depth -= 1
    return deepest
