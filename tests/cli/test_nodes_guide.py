"""The guide to real nodes: two machines without a shared disk, three parties, one report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from guides import ROOT, blocks

from fedsynth.cli.node_processes import end_all, free_ports
from fedsynth.cli.nodes import main
from fedsynth.cli.verify import main as verify
from fedsynth.storage.run_directory import LEDGER

GUIDE = "docs/guides/real_nodes.md"
TINY = (
    "delta=1e-3 engine=inprocess psg.width=4 psg.spc=2 psg.runs=2 psg.batches=2 psg.updates=1 "
    "evaluation.width=4 evaluation.nets=1 evaluation.max_images=50"
)


def commands(port: int) -> Iterator[tuple[str, list[str]]]:
    """The machine and the words of each command, for small data and this machine."""
    for block in blocks(GUIDE, "bash"):
        first, *lines = block.splitlines()
        for line in lines:
            here = line.replace("research.example.org:8000", f"127.0.0.1:{port}")
            here = here.replace("--host research.example.org", f"--host localhost --port {port}")
            here = here.replace("data.name=mnist", "data.name=shapes lifetime.delta=1e-3")
            here = here.replace("preset=smoke", f"data=shapes {TINY}")
            yield first.removeprefix("# "), here.split()


@pytest.mark.timeout(900)  # seconds on an idle machine
def test_the_guide_can_be_followed(tmp_path, monkeypatch, capsys):
    machines = {"A": tmp_path / "a", "B": tmp_path / "b"}
    other = {"A": machines["B"], "B": machines["A"]}
    for folder in machines.values():
        folder.mkdir()
    (port,) = free_ports(1)
    started: list[subprocess.Popen[bytes]] = []
    ran: list[str] = []
    try:
        for machine, words in commands(port):
            monkeypatch.chdir(machines[machine])
            ran.append(words[2] if words[0] == "fedsynth" else words[0])
            if words[0] == "scp":
                source = words[1].partition(":")[2]
                shutil.copy(other[machine] / source, machines[machine] / words[2])
            elif words[-1] == "&":
                command = [sys.executable, "-m", "fedsynth", *words[1:-1]]
                environment = {**os.environ, "PYTHONPATH": str(ROOT)}
                started.append(subprocess.Popen(command, env=environment))
            elif words[1] == "verify":
                assert verify(words[2:]) == 0
            else:
                patience = ["--patience", "120"] if words[2] in ("register", "run") else []
                assert main([*words[2:], *patience]) == 0, capsys.readouterr().err
    finally:
        end_all(started)
    assert {"init", "start", "register", "proposal", "run", "status", "report"} < set(ran)
    printed = capsys.readouterr().out
    assert printed.count("| answered | 2 |") == 3
    assert "every epsilon of metrics.csv holds" in printed
    run = machines["A"] / "joint"
    assert (run / "report.html").is_file()
    assert (run / LEDGER).read_text().count("fedsynth ledger extract") == 3
    assert len(list(machines["B"].glob("ward-*/ledger/ledger.jsonl"))) == 3
    assert not list(machines["A"].rglob("noise.key"))
    assert not list(machines["A"].rglob("records.npz"))
    assert not list(machines["B"].rglob("releases"))


def test_pages_name_commands_that_exist(capsys):
    """Each command of the guide explains itself."""
    for name in {words[2] for _, words in commands(1) if words[:2] == ["fedsynth", "nodes"]}:
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
        assert name in capsys.readouterr().out
    assert Path(ROOT / GUIDE).is_file()
