"""One job: one method at one budget and seed in one scenario, as text."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from dp_accounting import DpEvent

from fedsynth.core.device import AUTO, CPU, resolved_device
from fedsynth.core.enums import SecureSum, StageOrder
from fedsynth.core.plan import Plan
from fedsynth.core.plugins import load_file
from fedsynth.core.settings import build
from fedsynth.core.types import Budget
from fedsynth.data.formats.npz import public_name
from fedsynth.evaluation.config import EvaluationConfig
from fedsynth.experiment.scenario import scenario_stages
from fedsynth.experiment.scenario_config import ScenarioConfig
from fedsynth.methods.method import Method
from fedsynth.methods.registry import load_plugins
from fedsynth.methods.registry import method as find_method
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.storage.releases import release_name
from fedsynth.storage.run_directory import MESSAGES, PARTIES, SERVER


@dataclass(frozen=True)
class Job:
    """The complete description of a job, for the server; parties receive its proposal alone."""

    method: str
    settings: dict[str, Any]  # of the method
    budget: Budget
    seed: int
    scenario: ScenarioConfig
    evaluation: EvaluationConfig
    out: str  # the run directory
    noise_seed: int | None = None
    device: str = CPU  # of parties, server and evaluation: cpu, cuda or cuda:N
    secure_sum: SecureSum = SecureSum.IDEAL
    plugins: tuple[str, ...] = ()  # absolute paths of the files that define methods or data

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self.text())

    @property
    def name(self) -> str:
        """The name of the job's folders, in ledgers and in progress."""
        return release_name(self.method, self.budget.epsilon, self.seed)

    @functools.cached_property
    def method_impl(self) -> Method[Any]:
        """The method itself."""
        return find_method(self.method)

    @functools.cached_property
    def config(self) -> Any:
        """The method's settings as its own dataclass, for this job's budget and stages."""
        some = self.method_impl
        config: Any = build(some.Config, self.settings, self.method)
        return some.at_budget(config, scenario_stages(self.scenario), self.budget)

    def text(self) -> str:
        """The job as JSON; infinity is written as `Infinity`, which `parse` reads."""
        return self._text

    @functools.cached_property
    def _text(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Job:
        """Read a job from its text; cached per process."""
        return _parse(text)

    def plan(self, stage: int) -> Plan:
        """The public plan of one stage."""
        return _plan(self._planned, stage)

    @functools.cached_property
    def _planned(self) -> Job:
        """A job with the same plans: seeds, folders and the side that plans make no difference."""
        return Job(
            self.method,
            self.settings,
            self.budget,
            0,
            self.scenario,
            EvaluationConfig(),
            "",
            plugins=self.plugins,
        )

    @functools.cached_property
    def plans(self) -> tuple[Plan, ...]:
        """The public plans of all stages."""
        return tuple(self.plan(stage) for stage in range(len(scenario_stages(self.scenario))))

    @functools.cached_property
    def identity(self) -> str:
        """Text of everything that the releases depend on, for checkpoints and noise streams.

        Paths and the kind of secure sum are not part of it. Of plug-in files it holds the content:
        a request that an edited file answers is another one and is charged anew, instead of drawing
        the same noise for another function."""
        fields = dataclasses.asdict(self)
        for name in ("out", "evaluation", "secure_sum"):
            fields.pop(name)
        fields["scenario"].pop("data_dir")
        fields["scenario"]["data"] = public_name(self.scenario.data)
        fields["gpu"] = fields.pop("device") != CPU
        if paths := fields.pop("plugins"):
            fields["plugins"] = [load_file(path).digest for path in paths]
        return json.dumps(fields, sort_keys=True)

    @functools.cached_property
    def key(self) -> str:
        """A digest of `identity`: the name of this job among all jobs of a party."""
        return hashlib.sha256(self.identity.encode()).hexdigest()

    def parties_folder(self) -> Path:
        """The folder of all simulated parties of this job."""
        return Path(self.out) / PARTIES / self.name

    def party_folder(self, party: int) -> Path:
        """The folder of a simulated party: its policy, ledger, keys and unfinished work."""
        return self.parties_folder() / f"party-{party}"

    def work_folder(self, folder: Path, stage: int) -> Path:
        """The unfinished work of a party in a stage of this job, below the party's folder."""
        return folder / f"job-{self.key[:12]}" / f"stage-{stage}"

    def server_folder(self) -> Path:
        """The folder of the server: its unfinished work and the results of evaluations."""
        return Path(self.out) / SERVER / self.name

    def dropout_file(self, stage: int) -> Path:
        """The server's file of the parties that dropped out of a stage."""
        return self.server_folder() / f"stage-{stage}-gone.json"

    def progress_folder(self) -> Path:
        """The folder of messages to the driver, of all jobs of a run."""
        return Path(self.out) / MESSAGES

    @property
    def torch_device(self) -> torch.device:
        """The device on which a party or an evaluation computes in this process.

        Raises:
            UserError: It is a GPU that this process cannot use.
        """
        return resolved_device(self.device)

    @property
    def server_device(self) -> torch.device:
        """The device of the server, whose process may be on a machine of a cluster without GPU."""
        return resolved_device(CPU if self.device == CPU else AUTO)

    def epsilon(self, event: DpEvent, accountant: str) -> float:
        """The epsilon of an event at the delta and for the relation of the budget."""
        return epsilon(event, self.budget.delta, accountant, self.budget.relation)

    def paper_epsilon(self, event: DpEvent) -> float:
        """The epsilon of an event by the convention of the method's publication."""
        return epsilon(event, self.budget.delta, self.method_impl.paper_convention)


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> Job:
    fields = json.loads(text)
    fields["plugins"] = tuple(fields["plugins"])
    load_plugins(fields["plugins"])
    fields["budget"] = Budget(**fields["budget"])
    # Nothing is converted that would change the text: a party's job has the server's identity.
    stages = StageOrder(fields["scenario"].pop("stages"))
    fields["scenario"] = ScenarioConfig(**fields["scenario"], stages=stages)
    fields["secure_sum"] = SecureSum(fields["secure_sum"])
    fields["evaluation"] = EvaluationConfig(**fields["evaluation"])
    return Job(**fields)


@functools.lru_cache(maxsize=256)
def _plan(job: Job, stage: int) -> Plan:
    return job.method_impl.plan(job.config, scenario_stages(job.scenario)[stage], job.budget)
