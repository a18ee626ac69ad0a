"""One job: one method at one budget and seed in one world, as text that travels to the parties."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.plan import Plan
from fedsynth.core.plugins import load_file
from fedsynth.core.settings import build, former_names
from fedsynth.core.types import Budget
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.scenario import ScenarioConfig, scenario_stages
from fedsynth.methods.method import Method
from fedsynth.methods.registry import load_plugins
from fedsynth.methods.registry import method as find_method
from fedsynth.storage.run_directory import release_name


@dataclass(frozen=True)
class Job:
    """Everything a party or the curator needs to know; nothing in it is private."""

    method: str
    settings: dict[str, Any]  # of the method
    budget: Budget
    seed: int
    world: ScenarioConfig
    evaluation: EvaluationConfig
    out: str  # the run directory
    noise_seed: int | None = None
    gpu: bool = False
    secure_sum: str = "ideal"  # how noise in shares is summed: engine.summing
    plugins: tuple[str, ...] = ()  # absolute paths of the files that define methods or data

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self.text())

    @property
    def name(self) -> str:
        """The job's folder, and its name in ledgers and progress."""
        return release_name(self.method, self.budget.epsilon, self.seed)

    @functools.cached_property
    def method_impl(self) -> Method:
        """The method itself."""
        return find_method(self.method)

    @functools.cached_property
    def config(self) -> Any:
        """The method's settings as its own dataclass."""
        return build(self.method_impl.Config, self.settings, self.method)

    def text(self) -> str:
        """JSON; infinity travels as its Python name, which `parse` reads back."""
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Job:
        """The job of this text; parsed once a process."""
        return _parse(text)

    def plan(self, stage: int) -> Plan:
        """The public plan of one stage."""
        return _plan(self, stage)

    @functools.cached_property
    def identity(self) -> str:
        """What the releases depend on, for checkpoints: not where files lie, nor how is summed.

        Of plug-in files it holds the content: a request that an edited file answers is another one
        and is charged anew, instead of drawing the same noise for another function."""
        fields = dataclasses.asdict(self)
        for place in ("out", "evaluation", "secure_sum"):
            fields.pop(place)
        fields["world"].pop("data_dir")
        if paths := fields.pop("plugins"):
            fields["plugins"] = [load_file(path).digest for path in paths]
        former = {new: old for old, new in former_names(self.method_impl.Config).items()}
        fields["settings"] = {former.get(k, k): v for k, v in fields["settings"].items()}
        former = {new: old for old, new in former_names(ScenarioConfig).items()}
        fields["world"] = {former.get(k, k): v for k, v in fields["world"].items()}
        return json.dumps(fields, sort_keys=True)

    def party_folder(self, party: int) -> Path:
        """Where a party keeps its ledger, its noise key and its unfinished work."""
        return Path(self.out) / "parties" / self.name / f"party-{party}"

    def curator_folder(self) -> Path:
        """Where the curator keeps its unfinished work."""
        return Path(self.out) / "curator" / self.name


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Job:
    fields = json.loads(text)
    fields["plugins"] = tuple(fields["plugins"])
    load_plugins(fields["plugins"])
    fields["budget"] = Budget(**fields["budget"])
    fields["world"] = ScenarioConfig(**fields["world"])
    fields["evaluation"] = EvaluationConfig(**fields["evaluation"])
    return Job(**fields)


@functools.lru_cache(maxsize=256)
def _plan(job: Job, stage: int) -> Plan:
    return job.method_impl.plan(job.config, scenario_stages(job.world)[stage], job.budget)
