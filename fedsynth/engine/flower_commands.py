"""Flower's command line in this process: submit a run, ask for its state, register nodes.

The words are those of the command `flwr`; what is imported once answers all of them. A process of
its own per command costs more than a second.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from fedsynth.core.errors import UserError
from fedsynth.engine.flower_compat import quiet_flower
from fedsynth.storage.files import write_file

NAME = "fedsynth"
CONNECTION = "config.toml"
COMPLETED = "finished:completed"
FINISHED = "finished"


@dataclass(frozen=True)
class RunState:
    """The state of a run at the SuperLink."""

    status: str  # pending, starting, running, finished:completed, finished:failed, ...
    details: str

    @property
    def finished(self) -> bool:
        """True if nothing more happens."""
        return self.status.startswith(FINISHED)

    @property
    def completed(self) -> bool:
        """True if the ServerApp ended without an error."""
        return self.status == COMPLETED


class SuperLink:
    """A running SuperLink, by its address."""

    def __init__(self, home: Path, address: str, authority: Path | None) -> None:
        """Name a SuperLink; nothing is asked yet.

        Args:
            home: A folder for Flower's own files.
            address: Host and port.
            authority: The certificate of its authority; None: the connection is not encrypted.
        """
        self.home, self.address = home.absolute(), address
        secure = (
            "insecure = true\n"
            if authority is None
            else f"root-certificates = {json.dumps(str(authority.absolute()))}\n"
        )
        text = (
            f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n'
            f"address = {json.dumps(address)}\n{secure}"
        )
        write_file(self.home / CONNECTION, text.encode())

    @classmethod
    def of_home(cls, home: Path, address: str) -> SuperLink:
        """The SuperLink that was named before, by its folder.

        Raises:
            UserError: The folder does not name one.
        """
        path = home / CONNECTION
        if not path.is_file():
            raise UserError(
                f"the SuperLink at {address}: {path} is gone, which says how to reach it."
            )
        found = cls.__new__(cls)
        found.home, found.address = home, address
        return found

    def await_start(self, seconds: float, alive: Callable[[], bool] = lambda: True) -> None:
        """Wait until the SuperLink listens.

        Args:
            seconds: The longest time to wait.
            alive: Whether it may still start.

        Raises:
            UserError: It does not start in this time.
        """
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection((host.strip("[]"), int(port)), 1.0).close()
                return
            if not alive() or time.monotonic() > deadline:
                raise UserError(
                    f"no SuperLink listens at {self.address}: `fedsynth nodes start FOLDER` on "
                    "the server starts it."
                )
            time.sleep(0.1)

    def submit(self, app: Path, config: Path) -> int:
        """Start a run of the app with the run configuration in a TOML file; returns its number."""
        answer = self._ask(["run", str(app), "--run-config", str(config)])
        return int(answer["run-id"])

    def state(self, run: int) -> RunState:
        """The state of a run."""
        (found,) = self._ask(["ls", "--run-id", str(run)])["runs"]
        return RunState(str(found["status"]), str(found["status-details"] or ""))

    def nodes_online(self) -> int:
        """The number of SuperNodes that are connected."""
        nodes = self._ask(["supernode", "list"])["nodes"]
        return sum(node["status"] == "online" for node in nodes)

    def register(self, public_key: Path) -> None:
        """Admit the SuperNode with this public key."""
        try:
            self._ask(["supernode", "register", str(public_key)])
        except UserError as error:
            if "already" not in str(error):
                raise

    def _ask(self, words: Sequence[str]) -> dict[str, Any]:
        """The answer to a command of `flwr`, as JSON.

        Raises:
            UserError: The SuperLink cannot be reached or refuses; in Flower's own words.
        """
        quiet_flower()
        from flwr.cli.app import app
        from typer.main import get_command

        problem = ""
        with _home(self.home), _printed() as printed:
            try:
                get_command(app).main([*words, "--format", "json"], standalone_mode=False)
            except (click.ClickException, click.exceptions.Exit, SystemExit, OSError) as error:
                problem = str(error)
        text = printed.getvalue()
        start = text.find("{")
        with contextlib.suppress(ValueError):
            answer = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else {}
            if isinstance(answer, dict) and answer.get("success"):
                return answer
            problem = str(answer.get("error-message") or problem)
        said = " ".join((problem or text).split()) or "no answer"
        raise UserError(f"the SuperLink at {self.address}: {said}")


@contextlib.contextmanager
def _printed() -> Iterator[io.StringIO]:
    """Collect what Flower prints, which goes to the terminal by two names."""
    before = sys.stdout, sys.stderr, sys.__stdout__
    printed = io.StringIO()
    sys.stdout = sys.stderr = sys.__stdout__ = printed  # type: ignore[assignment, misc]
    try:
        yield printed
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = before  # type: ignore[misc]


@contextlib.contextmanager
def _home(folder: Path) -> Iterator[None]:
    """Flower's own folder, for a moment."""
    before = os.environ.get("FLWR_HOME")
    os.environ["FLWR_HOME"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["FLWR_HOME"]
        else:
            os.environ["FLWR_HOME"] = before
