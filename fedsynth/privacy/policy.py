"""The policy of a party: which data it answers from, which jobs it admits, and what they may cost.

A party reads it from its own `party.yaml`, whose path is part of the configuration of its node. No
message changes it: what a server sends is a proposal, which the party checks against its policy.

Claim: a party computes nothing for a proposal that its policy does not allow, and the refusal
states only the policy's public limits.
Assumption: the limits and the declared name and partition of the data are public. Folders, files,
records and what the ledger holds are not, and appear in no refusal.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from dp_accounting import DpEvent

from fedsynth.core.device import checked_device
from fedsynth.core.enums import Accounting, DataKind, SecureSum
from fedsynth.core.errors import Refusal, Refused, UserError, allowed, nearest
from fedsynth.core.plan import SERVER_VIEW, PartyPlan
from fedsynth.core.settings import build, plain, setting
from fedsynth.core.types import Budget
from fedsynth.privacy.accounting.accountant import ACCOUNTANTS
from fedsynth.privacy.accounting.events import disclosed, flatten
from fedsynth.privacy.lifetime import SLACK, LifetimeBudget

PRIVATE = "private"  # in `methods`: every method that is not a reference without privacy
SYSTEM = "system"  # noise from the operating system
SEED = "seed:"
MAX_BYTES = 100_000
Section = TypeVar("Section")


@dataclass(frozen=True)
class PolicyData:
    """The data of a party. The name and the partition are public, the places are not."""

    name: str = setting("", "public name of the data set, which a proposal must state")
    file: str | None = setting(None, "the party's own arrays (.npz); default: the data set `name`")
    records: str | None = setting(
        None, "file with this party's records alone, which `fedsynth nodes init` writes"
    )
    folder: str | None = setting(None, "folder of data sets; default FEDSYNTH_DATA or the cache")
    partition: str = setting("iid", "partitioner of the records among the parties")
    options: dict[str, Any] | None = setting(None, "options of the partitioner")
    parties: int = setting(1, "number of parties that share the data set", at_least=0)
    partition_seed: int = setting(0, "public seed of the partition", at_least=0)
    resize: int | None = setting(None, "side to which images are scaled", at_least=4)
    grey: bool = setting(False, "convert colour images to grey")
    holdout: float = setting(0.0, "training records held out, as in a scenario", at_least=0)
    source: str = setting("auto", "source of data=emnist_users")


@dataclass(frozen=True)
class PartyPolicy:
    """All that a party allows. Relative paths start from the folder of `party.yaml`."""

    data: PolicyData = field(default_factory=PolicyData)
    lifetime: LifetimeBudget = field(default_factory=LifetimeBudget)
    methods: tuple[str, ...] = setting((PRIVATE,), "allowed methods; private: all that have noise")
    kinds: tuple[str, ...] = setting(tuple(DataKind), "allowed kinds of data", choices=[*DataKind])
    job_epsilon: float | None = setting(
        None, "most epsilon of one job; default: the lifetime's", above=0, finite=False
    )
    accounting: tuple[str, ...] = setting(
        (Accounting.PLD.value,), "accountants to which noise may be calibrated", choices=ACCOUNTANTS
    )
    noise: str = setting(SYSTEM, "source of noise: system, or seed:NUMBER in a simulation")
    simulation: bool = setting(
        False, "a simulated party: allows a noise seed, and shares of noise outside a secure sum"
    )
    trusted_aggregator: bool = setting(
        False, "whether sums without noise may leave, to an aggregator that adds it"
    )
    secure_sum: str = setting(
        "allowed", "required: nothing leaves but under masks", choices=("allowed", "required")
    )
    least_shares: int = setting(
        2, "fewest parties in a sum whose noise they add in shares", at_least=1
    )
    peers: dict[str, Any] | None = setting(
        None, "public keys of the other parties by number, which sign their part of a secure sum"
    )
    ledger: str = setting(".", "folder of the ledger, the keys and unfinished work")
    progress: str | None = setting(None, "folder for the display of progress; default: none")
    most_records: int | None = setting(
        None, "most records that a stage of a job may use", at_least=1
    )
    most_rounds: int = setting(1000, "most requests that a stage of a job may make", at_least=1)
    device: str = setting("cpu", "device to compute on: auto, cpu, cuda or cuda:N")
    plugins: tuple[str, ...] = setting((), "Python files with methods or data of your own")

    def __hash__(self) -> int:
        return hash((self.data.name, self.data.folder, self.methods, self.noise, self.most_epsilon))

    def at(self, folder: Path) -> PartyPolicy:
        """This policy with absolute paths of its data and plug-ins, as seen from a folder."""

        def absolute(path: str | None) -> str | None:
            return None if path is None else str((folder / Path(path).expanduser()).absolute())

        own, plugins = self.data, tuple(absolute(path) or "" for path in self.plugins)
        data = dataclasses.replace(
            own,
            file=absolute(own.file),
            folder=absolute(own.folder),
            records=absolute(own.records),
        )
        if (data, plugins) == (own, self.plugins):
            return self
        return dataclasses.replace(self, data=data, plugins=plugins)

    @property
    def noise_seed(self) -> int | None:
        """The seed of a simulated party's noise; None: noise from the operating system."""
        return int(self.noise.removeprefix(SEED)) if self.noise.startswith(SEED) else None

    @property
    def peer_keys(self) -> dict[int, str]:
        """The public keys of the other parties in secure sums, by number; empty: unknown."""
        return {int(party): key for party, key in (self.peers or {}).items()}

    @property
    def most_epsilon(self) -> float:
        """The most that one job may cost."""
        most = self.lifetime.epsilon
        return most if self.job_epsilon is None else min(self.job_epsilon, most)

    def job_budget(self, wanted: Budget) -> Budget:
        """The budget that the ledger enforces in a job: what is wanted, at most what is allowed."""
        epsilon = min(wanted.epsilon, self.most_epsilon)
        delta = min(wanted.delta, self.lifetime.delta)
        return dataclasses.replace(wanted, epsilon=epsilon, delta=delta)

    def check_job(
        self, method: str, *, private: bool, kind: str, budget: Budget, secure_sum: str
    ) -> None:
        """Refuse what a proposal says about itself.

        Args:
            method: The name of the method.
            private: Whether the method adds noise.
            kind: The kind of the data.
            budget: The wanted budget.
            secure_sum: The wanted kind of secure sum.

        Raises:
            Refused: The policy does not allow it.
        """
        if method not in self.methods and not (private and PRIVATE in self.methods):
            self._refuse(f"method={method} is not allowed here.{self._names('methods', method)}")
        if kind not in self.kinds:
            self._refuse(f"data of the kind {kind} is not released.{self._names('kinds', kind)}")
        if budget.accounting not in self.accounting:
            self._refuse(
                f"accounting={budget.accounting} is not allowed here."
                f"{self._names('accounting', budget.accounting)}"
            )
        life = self.lifetime
        for key, wanted, own in (
            ("unit", budget.unit, life.unit),
            ("relation", budget.relation, life.relation),
        ):
            if wanted != own:
                self._refuse(f"{key}={wanted}: this party's budget is for {key}={own}.")
        if budget.delta > life.delta * (1 + SLACK):
            self._refuse(
                f"delta={budget.delta:g} is asked for; at most {life.delta:g} is allowed.",
                Refusal.BUDGET,
            )
        if budget.epsilon > self.most_epsilon * (1 + SLACK):
            self._refuse(
                f"epsilon={budget.epsilon:g} is asked for; one job may cost at most "
                f"{self.most_epsilon:g} at delta={life.delta:g} (unit {life.unit}, relation "
                f"{life.relation}).",
                Refusal.BUDGET,
            )
        if secure_sum == SecureSum.IDEAL and self.secure_sum == "required":
            self._refuse("secure_sum=ideal: this party answers in secure sums only (secagg).")

    def check_plan(self, plan: PartyPlan, *, rounds: int, secure_sum: str) -> None:
        """Refuse what the party's own plan of a stage turns out to be.

        Args:
            plan: The party's own part, computed from its own facts.
            rounds: The number of rounds of the stage.
            secure_sum: The wanted kind of secure sum.

        Raises:
            Refused: The policy does not allow it.
        """
        if plan.without_noise and not self.simulation:
            self._refuse("noise=none is for simulated parties only: this party adds noise.")
        if math.isfinite(self.lifetime.epsilon) and _discloses(plan.event):
            self._refuse("this job would disclose records without noise.")
        if not self.trusted_aggregator and _discloses(plan.views.get(SERVER_VIEW)):
            self._refuse(
                "noise_at=aggregate: this party trusts no aggregator and sends no sum without "
                "noise. Allowed: noise at the party, or distributed noise in a secure sum."
            )
        if self.secure_sum == "required" and plan.shares < 2:
            self._refuse("this party answers in secure sums only: ask with distributed noise.")
        if plan.shares > 1 and not self.simulation:
            if plan.shares < self.least_shares:
                self._refuse(f"sums of fewer than {self.least_shares} shares are not answered.")
            if secure_sum == SecureSum.IDEAL:
                self._refuse(
                    "distributed noise needs masks (secure_sum=secagg): a share of the noise does "
                    "not protect what leaves with it."
                )
        if self.most_records is not None and plan.records > self.most_records:
            self._refuse(f"a job may use at most {self.most_records} records of this party.")
        if rounds > self.most_rounds:
            self._refuse(f"{rounds} rounds are planned; at most {self.most_rounds} are answered.")

    def _names(self, key: str, name: str) -> str:
        names = getattr(self, key)
        return f"{nearest(name, names)} {allowed(names)}"

    @staticmethod
    def _refuse(text: str, code: Refusal = Refusal.POLICY) -> None:
        raise Refused(code, text)


def _discloses(event: DpEvent | None) -> bool:
    if event is None:
        return False
    return any(base in flatten(event) for base in flatten(disclosed()))


def read_policy(path: Path) -> PartyPolicy:
    """Read a party's policy.

    Raises:
        UserError: There is no such file, or it is not a policy; names the key and what is allowed.
            The text is for the party itself: it may hold paths.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UserError(f"the policy {path} cannot be read: {error.strerror}.") from error
    if len(raw) > MAX_BYTES:
        raise UserError(f"{path}: a policy has {MAX_BYTES:,} bytes at most.")
    try:
        return parse_policy(raw.decode())
    except (UserError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from error


@functools.lru_cache(maxsize=64)
def parse_policy(text: str) -> PartyPolicy:
    """The policy in the text of a `party.yaml`; parties with equal texts share one object.

    Raises:
        UserError: A key is unknown, missing or wrong.
    """
    try:
        values = yaml.load(text, Loader=_StrictLoader)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise UserError(f"no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError("a policy holds keys and values: data, lifetime, methods and others.")
    values = {str(key): value for key, value in values.items()}
    data = _section(PolicyData, values.pop("data", None), "data")
    lifetime = _section(LifetimeBudget, values.pop("lifetime", None), "lifetime")
    _check_keys(values)
    policy = dataclasses.replace(build(PartyPolicy, values), data=data, lifetime=lifetime)
    _check(policy)
    return policy


def policy_text(policy: PartyPolicy) -> str:
    """The text of a `party.yaml` with this policy; keys with their default are left out."""
    values: dict[str, Any] = {}
    for section in ("data", "lifetime"):
        values[section] = _changed(getattr(policy, section))
    values |= _changed(policy)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _changed(part: Any) -> dict[str, Any]:
    found = {}
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if not dataclasses.is_dataclass(value) and value != f.default:
            found[f.name] = plain(value)
    return found


def _check_keys(values: Mapping[str, Any]) -> None:
    """Name the sections too when a key is unknown."""
    names = [f.name for f in dataclasses.fields(PartyPolicy)]
    for key in values:
        if key not in names:
            raise UserError(f"unknown key '{key}'.{nearest(key, names)} {allowed(names)}")


def _section(cls: type[Section], values: Any, name: str) -> Section:
    if not isinstance(values, dict):
        keys = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        what = "is missing" if values is None else f"is {values!r}"
        raise UserError(f"{name} {what}: it is a section of keys and values. {allowed(keys)}")
    return build(cls, {str(key): value for key, value in values.items()}, name)


def _check(policy: PartyPolicy) -> None:
    life = policy.lifetime
    if not policy.data.name:
        raise UserError("data.name is missing: the public name of the data set.")
    checked_device(policy.device)
    if math.isnan(life.epsilon):
        raise UserError("lifetime.epsilon is missing: what all jobs together may cost.")
    for party, key in (policy.peers or {}).items():
        if not str(party).isdecimal() or not re.fullmatch("[0-9a-f]{64}", str(key)):
            raise UserError(
                f"peers.{party}={key!r}: a party's number and its public key of 64 hexadecimal "
                "digits."
            )
    if life.order is not None and life.limit <= 0:
        raise UserError(
            f"lifetime.order={life.renyi_order:g} proves nothing about epsilon={life.epsilon:g} at "
            f"delta={life.delta:g}: leave it out, or choose a larger one."
        )
    if policy.noise != SYSTEM:
        if not policy.noise.removeprefix(SEED).isdigit() or not policy.noise.startswith(SEED):
            raise UserError(
                f"noise={policy.noise!r} is unknown. Allowed: system, or seed:NUMBER together "
                "with simulation: true."
            )
        if not policy.simulation:
            raise UserError(
                f"noise={policy.noise!r}: whoever knows the seed subtracts the noise. A party with "
                "real records takes noise: system; a seed needs simulation: true."
            )


class _StrictLoader(yaml.SafeLoader):
    """A safe loader that refuses a key that is given twice.

    It is the loader in Python: the one in C ends the process on 100,000 nested brackets."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node.

        Raises:
            yaml.constructor.ConstructorError: A key is given twice.
        """
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                problem = f"the key {key!r} is given twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
