"""The guides to SLURM and Kubernetes: the batch script with stand-ins for commands, and the job."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml
from guides import blocks

import fedsynth
from fedsynth.data.fetch.fetch import VARIABLE
from fedsynth.experiment.config import parse_overrides, resolve

STAND_INS = {  # each writes down its words; those of nodes stay, as with --block
    "scontrol": "echo n1; echo n2",
    "srun": 'echo "srun $*" >> calls; touch node-$$; exec sleep 60',
    "ray": 'for node in node-*; do echo " 1 node_$node"; done',
    "fedsynth": """trap 'echo "fedsynth ended" >> calls; exit 143' TERM
        echo "fedsynth $*" >> calls; mkdir -p runs/one; while [ -e wait ]; do sleep .05; done""",
}


@pytest.fixture
def login_node(tmp_path: Path) -> Path:
    """A folder with the script of the guide, an environment and SLURM's commands."""
    (script,) = blocks("docs/guides/slurm.md", "bash")
    (tmp_path / "fedsynth.sbatch").write_text(script)
    commands = tmp_path / ".venv" / "bin"
    commands.mkdir(parents=True)
    (commands / "activate").write_text(f"PATH={shlex.quote(str(commands))}:$PATH\n")
    for name, body in STAND_INS.items():
        (commands / name).write_text(f"#!/bin/bash\n{body}\n")
        (commands / name).chmod(0o755)
    return tmp_path


def submit(folder: Path) -> subprocess.Popen[bytes]:
    """Start the script as SLURM does on the first node."""
    return subprocess.Popen(
        ["bash", "fedsynth.sbatch", "scenario=split_mnist", "preset=laptop"],
        cwd=folder,
        env={**os.environ, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NAME": "one"},
        start_new_session=True,
    )


def finish(job: subprocess.Popen[bytes]) -> int:
    """Wait for the script; then end its nodes, as SLURM does."""
    code = job.wait(30)
    os.killpg(job.pid, signal.SIGKILL)
    return code


def test_the_batch_script_starts_a_cluster_and_a_run_and_continues_it(login_node: Path) -> None:
    assert finish(submit(login_node)) == 0
    calls = (login_node / "calls").read_text().splitlines()
    run, worker, head = sorted(calls)  # they are written by processes of their own
    assert "--nodelist=n1 ray start --head --port=6379 --num-cpus=1" in head
    assert "--exclude=n1 ray start --address=n1:6379 --num-cpus=1" in worker
    assert run == "fedsynth run scenario=split_mnist preset=laptop address=n1:6379 out=runs/one"
    assert finish(submit(login_node)) == 0
    again = (login_node / "calls").read_text().splitlines()
    assert "fedsynth resume runs/one address=n1:6379" in again


def test_a_signal_to_the_batch_script_reaches_the_run(login_node: Path) -> None:
    (login_node / "wait").touch()
    job = submit(login_node)
    end = time.monotonic() + 30
    while not (login_node / "runs" / "one").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    job.terminate()
    assert finish(job) == 143
    end = time.monotonic() + 30
    while "fedsynth ended" not in (login_node / "calls").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_job_of_kubernetes_is_a_run_that_resolves() -> None:
    (text,) = blocks("docs/guides/kubernetes.md", "yaml")
    job = yaml.safe_load(text)["spec"]
    command, verb, *words = shlex.split(job["entrypoint"])
    assert (command, verb) == ("fedsynth", "run")
    assert resolve(parse_overrides(words)).run.address == "auto"
    cluster = job["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    for group in (cluster["headGroupSpec"], workers):
        (container,) = group["template"]["spec"]["containers"]
        (volume,) = container["volumeMounts"]
        assert container["image"].endswith(f":{fedsynth.__version__}")
        assert container["env"][0]["name"] == VARIABLE
        assert container["env"][0]["value"].startswith(volume["mountPath"])
        assert f"out={volume['mountPath']}/" in job["entrypoint"]
