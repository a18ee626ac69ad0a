"""Actors without Ray: a cluster with a number of free places, whose nodes a test takes away."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.exceptions import RayActorError

from fedsynth.engine.ray import calls
from fedsynth.engine.ray import pool as module
from fedsynth.engine.ray.nodes import WorkerPlace


class Ref:
    """The reference to a result that arrives later."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    def future(self) -> Future[Any]:
        return self._future


class Call:
    """A method of an actor."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def remote(self, *arguments: Any) -> Ref:
        return Ref(self._run(*arguments))


class Actor:
    """An actor that starts as soon as a node has room for it, and answers with its node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.node = cluster, ""
        self.started: Future[Any] = Future()
        self.running: list[Future[Any]] = []
        self.place = Call(lambda: self.started)
        self.work = Call(self._work)

    def _work(self, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments == ("long",):
            self.running.append(future)
        else:
            future.set_result(self.node)
        return future


@dataclass
class Cluster:
    """Nodes by name, each with room for one actor."""

    disks: dict[str, str] = field(default_factory=dict)  # of living nodes
    actors: list[Actor] = field(default_factory=list)
    lock: Any = field(default_factory=threading.RLock)

    def spawn(self, _node: str | None) -> Actor:
        with self.lock:
            self.actors.append(Actor(self))
            self.settle()
            return self.actors[-1]

    def settle(self) -> None:
        """Give the free nodes to actors that wait."""
        with self.lock:
            for actor in [a for a in self.actors if not a.node]:
                taken = {a.node for a in self.actors}
                free = [node for node in self.disks if node not in taken]
                if free:
                    actor.node = free[0]
                    place = WorkerPlace(free[0], free[0], self.disks[free[0]])
                    actor.started.set_result(place)

    def add(self, node: str, disk: str = "") -> None:
        """A node joins."""
        with self.lock:
            self.disks[node] = disk
            self.settle()

    def kill(self, node: str) -> None:
        """A node dies with its actor."""
        with self.lock:
            del self.disks[node]
            for actor in [a for a in self.actors if a.node == node]:
                self.actors.remove(actor)
                for future in actor.running:
                    future.set_exception(RayActorError())

    def discard(self, actor: Actor) -> None:
        with self.lock:
            if actor in self.actors:
                self.actors.remove(actor)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster in place of Ray's, without a node."""
    found = Cluster()
    monkeypatch.setattr(module.ray, "kill", found.discard)
    monkeypatch.setattr(module.ray, "available_resources", dict)
    monkeypatch.setattr(module, "is_alive", lambda node: node in found.disks)
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(module, "NOTE_SECONDS", 0.05)
    monkeypatch.setattr(calls, "EXPECT_SECONDS", 0.05)
    return found
