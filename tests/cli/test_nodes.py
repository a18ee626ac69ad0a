"""Real SuperLink and SuperNode processes, each in a folder of its own: the bits of a simulation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import tiny_runs as tiny

from fedsynth.api.launch import propose
from fedsynth.cli import node_submission as submission
from fedsynth.cli.main import with_scenario
from fedsynth.cli.node_processes import LOG, running_nodes
from fedsynth.cli.nodes import main
from fedsynth.cli.run import main as run_main
from fedsynth.core.errors import JobsFailed
from fedsynth.experiment.config import parse_overrides, resolve
from fedsynth.experiment.node_folders import party_folders
from fedsynth.experiment.simulated_parties import policy_of
from fedsynth.privacy.policy import policy_text
from fedsynth.storage.run_directory import LEDGER

WORDS = [
    *("split_mnist", "data=shapes", "parties=3", "partition=iid", "options={}", "stages=together"),
    *("holdout=1600", "method=psg,psg_joint,dp_sgd", "epsilon=10", "delta=1e-3", "accounting=rdp"),
    *("secure_sum=secagg", "engine=inprocess", "noise_seed=3"),
    *("psg.width=4", "psg.spc=2", "psg.runs=3", "psg.batches=2", "psg.updates=1"),
    *("psg_joint.width=4", "psg_joint.spc=2", "psg_joint.runs=1", "psg_joint.noise_at=distributed"),
    *("psg_joint.batches=2", "psg_joint.updates=1"),
    *("dp_sgd.width=4", "dp_sgd.epochs=1", "dp_sgd.batch=32"),
    *("evaluation.width=4", "evaluation.nets=1", "evaluation.max_images=50"),
]
POLICY = ["data.name=shapes", "data.holdout=1600", "data.options={}", "accounting=rdp"]
POLICY += ["lifetime.epsilon=10", "lifetime.delta=1e-3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of a server and three parties, and the run directory of three jobs."""
    folder = tmp_path_factory.mktemp("nodes")
    assert main(["init", str(folder / "all"), "--parties", "3", *POLICY]) == 0
    words = with_scenario([*WORDS, f"out={folder / 'run'}"])
    propose(resolve(parse_overrides(words)), words, note=print)
    words = [w for w in words if not w.startswith(("method=", "out=", "dp_sgd.", "psg."))]
    assert main(["proposal", *words, "method=psg_joint", f"out={folder / 'refused'}"]) == 0
    return folder


@pytest.fixture(scope="module")
def answered(folder: Path) -> Iterator[None]:
    """One SuperLink and three SuperNodes, for all jobs; the last one is refused by one party."""
    before = set(psutil.Process().children(recursive=True))
    run, jobs = submission.open_run(folder / "run")
    parties = party_folders(folder / "all")
    with running_nodes(folder / "all" / "server", parties) as superlink:
        for job in jobs:
            policy = policy_of(job)  # of a simulation: each job is a world of its own
            data = dataclasses.replace(policy.data, records="records.npz", folder="data")
            own = dataclasses.replace(policy, data=data, ledger=job.name, progress=None)
            for party in parties:
                (party / "party.yaml").write_text(policy_text(own))
            submission.run_in_turn(run, [job], superlink, 60.0)
        stricter = policy_text(own).replace("epsilon: 10", "epsilon: 9")
        (parties[1] / "party.yaml").write_text(stricter)
        refused, jobs = submission.open_run(folder / "refused")
        with pytest.raises(JobsFailed, match=r"party 1 refused \(budget\): epsilon=10 is asked"):
            submission.run_in_turn(refused, jobs, superlink, 60.0)
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.mark.timeout(900)  # with the processes that start; seconds on an idle machine
def test_real_nodes_give_the_bits_of_a_simulation(answered, folder, tmp_path, capsys):
    """One release, a secure sum of shares of noise and a relay: releases, certificates and metrics
    are those of one process, and the report is that of a simulation."""
    assert run_main(with_scenario([*WORDS, f"out={tmp_path / 'one'}", "--quiet"])) == 0
    assert main(["report", str(folder / "run"), "--quiet"]) == 0
    ours, theirs = tiny.outputs(folder / "run"), tiny.outputs(tmp_path / "one")
    wanted = {n: data for n, data in theirs.items() if not n.startswith(("parties", LEDGER))}
    assert {name: ours[name] for name in wanted} == wanted
    assert sum(name.endswith(".npz") for name in wanted) == 3
    assert (folder / "run" / "report.html").is_file()
    assert not (folder / "run" / "parties").exists()
    assert main(["status", str(folder / "run")]) == 0
    printed = capsys.readouterr().out
    assert printed.count(": released") == 3


def test_a_refusal_names_its_party_and_code_and_writes_no_report(answered, folder, capsys):
    """`flwr run` itself would leave with 0; the state outlives the SuperLink."""
    assert main(["status", str(folder / "refused")]) == 0
    printed = capsys.readouterr().out
    assert "0 of 1 stages released" in printed
    assert "| 1 | refused | 0 | party 1 refused (budget): epsilon=10 is asked for" in printed
    assert "| 0 | answered | 1 |" in printed
    assert main(["report", str(folder / "refused"), "--quiet"]) == 2
    assert "party 1 refused (budget)" in capsys.readouterr().err
    assert not (folder / "refused" / "report.html").exists()


def test_every_party_kept_its_state_in_its_own_folder(answered, folder):
    """Ledger, keys and records; nothing of it lies at the server."""
    for party in party_folders(folder / "all"):
        for job in ("psg", "psg_joint", "dp_sgd"):
            assert (party / f"{job}-eps10-seed0" / LEDGER).is_file()
        assert (party / LOG).read_text().count("Sent successfully") > 5
    assert not [path for path in (folder / "run").rglob("party-*") if path.is_dir()]


def test_mistakes_are_one_message(tmp_path, capsys):
    """Nothing is started and nothing half-written."""
    run = str(tmp_path / "run")
    for words, said in {
        ("init", str(tmp_path / "a"), "data.name=mnist"): "--parties N is needed",
        ("init", str(tmp_path / "a"), "--server", "data.name=mnist"): "takes no --party",
        ("start", str(tmp_path)): "`fedsynth nodes init` writes it",
        ("run", run, "--nodes", str(tmp_path)): "does not exist",
        ("status", run): "does not exist",
        ("register", "key.pub"): "name the SuperLink",
        ("register", "key.pub", "--superlink", "a:1"): "--superlink needs --ca FILE",
    }.items():
        assert main(words) == 2
        printed = capsys.readouterr()
        assert said in printed.err
        assert printed.out == ""
    assert list(tmp_path.iterdir()) == []
