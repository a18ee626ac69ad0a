"""Whole runs on a Ray cluster of two nodes: without a shared disk, and with nodes that leave."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny_runs as tiny
import two_nodes
from two_nodes import Cluster

from fedsynth.cli.run import main
from fedsynth.storage.disk_identity import IDENTITY

# One release, a conversation and a relay: a few seconds of work.
WORDS = [
    *("data=shapes", "parties=2", "holdout=1600", "method=psg_joint,dp_sgd,psg"),
    *("epsilon=10", "delta=1e-3", "accounting=rdp"),
    *("psg_joint.width=4", "psg_joint.spc=2", "psg_joint.runs=6"),
    *("psg_joint.batches=2", "psg_joint.updates=1"),
    *("dp_sgd.width=4", "dp_sgd.epochs=1", "dp_sgd.batch=32"),
    *("psg.width=4", "psg.spc=2", "psg.runs=3", "psg.batches=2", "psg.updates=1"),
    *("evaluation.width=4", "evaluation.nets=1", "evaluation.max_images=50"),
]
LONG = [*WORDS, "method=psg_joint", "psg_joint.runs=150"]
LONG.remove("method=psg_joint,dp_sgd,psg")
LONG.remove("psg_joint.runs=6")
OWN = [word for word in WORDS if not word.startswith(("data=", "holdout=", "method="))]
OWN += ["data=file:own.npz", "partition=iid", "options={}", "stages=together"]
PATIENCE = 200.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with two_nodes.open_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the run in one process."""
    out = tmp_path_factory.mktemp("one") / "run"
    assert main([*WORDS, "noise_seed=3", "engine=inprocess", f"out={out}", "--quiet"]) == 0
    return results(out)


def results(out: Path) -> dict[str, bytes]:
    """Releases with their certificates, merged ledgers and metrics."""
    found = tiny.outputs(out)
    return {name: data for name, data in found.items() if not name.startswith("parties/")}


def own_data(folder: Path) -> None:
    """Write a small data set of two classes to the first node's disk."""
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    images = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(folder / "own.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)


def finish(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Wait for the end of a run; returns its code, what it printed, and its errors."""
    output, errors = run.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    return run.returncode, output, errors


def wait_for(folder: Path, pattern: str, run: subprocess.Popen[str]) -> list[Path]:
    """Wait until a folder has such files, in the middle of a run."""
    end = time.monotonic() + PATIENCE
    while not (found := list(folder.glob(pattern))):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_nodes_without_a_shared_disk_give_the_results_of_one_machine(cluster, on_one_machine):
    """Ledgers lie on the nodes of their parties; `out=` is relative; the report knows all."""
    second = cluster.second()
    code, output, errors = finish(cluster.run([*WORDS, "noise_seed=3", "out=run"]))
    assert code == 0, errors
    out = cluster.folder / "run"
    assert results(out) == on_one_machine
    assert "the nodes do not share this run directory (2 disks)" in output
    there = two_nodes.seen_by(second, out)
    assert (out / "parties" / IDENTITY).read_text() != (there / "parties" / IDENTITY).read_text()
    for job in out.glob("parties/*-seed0"):
        here = {path.parent.name for path in job.glob("party-*/ledger.jsonl")}
        elsewhere = {
            path.parent.name for path in (there / "parties" / job.name).glob("party-*/ledger.jsonl")
        }
        assert here | elsewhere == {"party-0", "party-1"}
        assert not here & elsewhere
        assert elsewhere


def test_data_on_one_node_only(cluster):
    """All parties answer there, with real noise, whose keys are gone at the end."""
    own_data(cluster.folder)
    second = cluster.second()
    code, output, errors = finish(cluster.run([*OWN, "method=psg", "out=own"]))
    assert code == 0, errors
    assert "no party answers on node second-" in output
    out = cluster.folder / "own"
    assert len(list(out.glob("parties/*/party-*/ledger.jsonl"))) == 2
    there = two_nodes.seen_by(second, out)
    assert not list(there.glob("parties/*/party-*"))
    assert not list(out.rglob("noise.key"))


def test_losing_the_node_without_data_changes_nothing(cluster, monkeypatch):
    """Kill -9 of a node that holds no data, in the middle of a conversation and without a shared
    disk: releases, ledgers and metrics are those of one machine."""
    own_data(cluster.folder)
    words = [word.replace("psg_joint.runs=6", "psg_joint.runs=40") for word in OWN]
    words += ["method=psg_joint,psg", "noise_seed=3"]
    node = cluster.second()
    run = cluster.run([*words, "out=left"])
    out = cluster.folder / "left"
    wait_for(out / "parties", "psg_joint-*/party-*/ledger.jsonl", run)
    node.kill()
    code, _, errors = finish(run)
    assert code == 0, errors
    monkeypatch.chdir(cluster.folder)
    assert main([*words, "engine=inprocess", "out=alone", "--quiet"]) == 0
    assert results(out) == results(cluster.folder / "alone")
    assert len(list(out.glob("parties/*/party-*/ledger.jsonl"))) == 4


def test_a_lost_node_without_a_shared_disk_is_a_refusal_by_name(cluster, capsys):
    """Kill -9 of a node in the middle of a conversation. Neither the run, nor one in a single
    process, nor a node with an empty disk begins the ledger of its party anew."""
    node = cluster.second()
    run = cluster.run([*LONG, "out=lost"])
    out = cluster.folder / "lost"
    parties = two_nodes.seen_by(node, out) / "parties" / "psg_joint-eps10-seed0"
    (ledger,) = wait_for(parties, "party-*/ledger.jsonl", run)
    node.kill()
    party = ledger.parent.name
    sentence = f"{party.replace('-', ' ')}: its ledger and keys lie on the disk of second-"
    code, _, errors = finish(run)
    assert code == 2
    assert sentence in errors
    assert "--resume" in errors
    assert main(["--resume", str(out), "engine=inprocess", "address=", "--quiet"]) == 2
    assert sentence in capsys.readouterr().err
    empty = cluster.second()
    code, _, errors = finish(cluster.run(["--resume", "lost"]))
    assert code == 2
    assert sentence in errors
    assert not list(out.glob(f"parties/*/{party}/ledger.jsonl"))
    there = two_nodes.seen_by(empty, out)
    assert not list(there.glob(f"parties/*/{party}/ledger.jsonl"))


def test_a_lost_node_with_a_shared_disk_changes_nothing(cluster, on_one_machine, tmp_path):
    """Kill -9 of a node in the middle: the run shrinks to the worker it has."""
    out = tmp_path / "run"
    node = cluster.second()
    run = cluster.run([*WORDS, "noise_seed=3", f"out={out}"])
    wait_for(out / "parties", "dp_sgd-*/party-*/ledger.jsonl", run)
    node.kill()
    code, output, errors = finish(run)
    assert code == 0, errors
    assert "all workers so far see this run directory" in output
    assert results(out) == on_one_machine
