"""An environment without a network, in which each source of data can be made available."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
import tiny_data as tiny

from fedsynth.data.fetch import known_files as files
from fedsynth.data.fetch import registries as clients


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No mirror answers, no client is installed, nothing is on the machine, the data set is tiny.

    `mirrors` can be appended to, `programs` is the only folder on the PATH, `installed` is where a
    system package would be.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/"
    mirrors = [nobody]
    programs, installed = tmp_path / "programs", tmp_path / "installed"
    programs.mkdir()
    datasets = SimpleNamespace(MNIST=SimpleNamespace(mirrors=mirrors))
    monkeypatch.setattr(clients, "import_torchvision", lambda _module: datasets)
    monkeypatch.setattr(clients, "MIRROR_TIMEOUT", 0.5)
    monkeypatch.setattr(clients, "CLIENT_TIMEOUT", 0.5)
    monkeypatch.setenv("PATH", str(programs))
    tiny_set = tiny.file_set(str(installed))
    monkeypatch.setitem(files.FILE_SETS, "tiny", tiny_set)
    return SimpleNamespace(
        files=tiny_set,
        mirrors=mirrors,
        programs=programs,
        installed=installed,
        data=tmp_path / "data",
        mine=tmp_path / "data" / "tiny",
    )
