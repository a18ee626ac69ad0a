"""Engines for the tests of the whole house. Ray takes seconds to start, so it starts once."""

from __future__ import annotations

import ctypes
import platform
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakes
import pytest
import torch

from fedsynth.api import launch
from fedsynth.core import plugins
from fedsynth.engine.base import Engine
from fedsynth.experiment import server_session
from fedsynth.experiment.flower_apps import open_job_engine
from fedsynth.privacy import guard, party_data
from fedsynth.storage import checkpoint

HERE = Path(__file__).parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts its background jobs deaf to Ctrl-C, and they pass that on:
    # runs that the tests interrupt would not hear it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)  # as in a worker; the tests themselves run in several processes

LONG = (
    "test_node_networks.py",
    "test_two_nodes.py",
    "test_faults.py",
    "engine/ray/test_cluster.py",
    "cli/test_nodes.py",
    "cli/test_nodes_guide.py",
    "cli/test_run.py",
    "experiment/test_method_audit.py",
    "privacy/auditing/test_mechanisms.py",
    "methods/test_contract.py",
    "engine/test_flower_simulation.py",
    "cli/test_export_guide.py",
    "experiment/test_config.py",
    "test_extension.py",
    "api/test_python_guide.py",
    "cli/test_certificates_guide.py",
    "cli/test_reports_guide.py",
    "test_guides.py",
    "evaluation/test_train_classifier.py",
    "methods/test_contract_privacy.py",
    "engine/test_dropouts.py",
    "cli/test_own_data_guide.py",
    "privacy/test_fuzz_requests.py",
    "experiment/test_inversion_estimate.py",
    "privacy/test_summation_order.py",
    "privacy/test_ledger_file.py",
    "engine/ray/test_pool.py",
    "methods/test_colour.py",
    "privacy/auditing/test_attacks.py",
    "methods/test_contract_learning.py",
)
"""The files that take longest. They run first, so that no worker is left with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long files first; the order within a file stays."""
    first = {HERE / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: first.get(item.path, len(LONG)))


@pytest.fixture(scope="module", autouse=True)
def give_memory_back() -> Iterator[None]:
    """Freed memory goes back to the system after each file: workers are set up to keep it, and the
    files of a whole run together would keep several gigabytes."""
    yield
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def here() -> Iterator[Engine]:
    """Everything in this process."""
    with open_job_engine("inprocess") as engine:
        yield engine


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As in a worker; small products on many threads are mostly waiting."""
    with launch.one_thread():
        yield


@pytest.fixture(scope="session")
def one_worker(ray_stage: fakes.Stage) -> Iterator[Engine]:
    """Ray with one worker. It asks Ray for no CPU, so that other tests' workers are no trouble.

    The size of the local Ray is that of `ray_stage`, which therefore starts first."""
    with open_job_engine("ray", workers=1, num_cpus=0) as engine:
        yield engine


@pytest.fixture(scope="session")
def two_workers(one_worker: Engine) -> Iterator[Engine]:
    """Ray with two workers, beside the one."""
    with open_job_engine("ray", workers=2, num_cpus=0) as engine:
        yield engine


@pytest.fixture(autouse=True)
def no_broken_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plug-in that breaks in one test is not listed as broken in the next one."""
    monkeypatch.setattr(plugins, "_broken", {})


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mechanisms return what they would have added noise to."""
    monkeypatch.setattr(guard, "noised", lambda values, **_: [value.float() for value in values])


@pytest.fixture
def checkpoint_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoint after every round instead of every ten seconds."""

    def rounds(*arguments: Any, **named: Any) -> Iterator[int]:
        return checkpoint.rounds(*arguments, **named, every_seconds=0)

    monkeypatch.setattr(server_session, "rounds", rounds)
    monkeypatch.setattr(party_data, "rounds", rounds)


@pytest.fixture(scope="session")
def ray_stage() -> Iterator[fakes.Stage]:
    """Fake parties on two workers of a local Ray, each with a CPU of its own."""
    with fakes.open_stage("ray", workers=2, timeout=120.0) as stage:
        yield stage


@pytest.fixture
def local_stage() -> Iterator[fakes.Stage]:
    """Fake parties in this process."""
    with fakes.open_stage("inprocess") as stage:
        yield stage
