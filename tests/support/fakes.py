"""A fake method for the engine's tests: parties add keyed noise, the server collects releases."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fedsynth.core.errors import Refusal, Refused
from fedsynth.core.messages import Release, Request
from fedsynth.core.randomness import numpy_generator, torch_generator
from fedsynth.engine.base import Engine
from fedsynth.engine.client_app import Node
from fedsynth.engine.factory import open_engine
from fedsynth.engine.server_app import Ask, Compute, StageCallback, compute_here


def answer(proposal: str, node: Node, stage: int, request: Request) -> Release:
    """Noise keyed by job, party, stage and round, added to the server's arrays; or a fault."""
    options, party = json.loads(proposal), node.party
    if (instead := _mishap(options, party)) is not None:
        return instead
    if request.kind == "reveal":
        raise ValueError("patient 4711 has the value 0.25")
    key = (options["seed"], party, stage, request.round)
    size = int(options.get("size", 5))
    noise = torch.randn(size, generator=torch_generator(*key))
    given = request.arrays.get("given", torch.zeros(size))
    matrix = noise[:64].outer(noise[:64])
    arrays = {
        "sum": given + noise,
        "product": matrix @ matrix.T,
        "double": torch.from_numpy(numpy_generator(*key).normal(size=3)),
        "label": torch.tensor(party),
        "pixels": torch.arange(party % 7, dtype=torch.uint8),
    }
    scalars = {"party": party, "threads": torch.get_num_threads(), "kind": request.kind}
    if request.kind == "meet":
        scalars["met"] = _meet(pathlib.Path(options["folder"]), party)
    return Release(party, arrays, (f"{party}-{stage}-{request.round}",), scalars)


def _mishap(options: dict, party: int) -> Any:
    """The fault of this party, if any: {"mishap": {"2": "hang"}}."""
    what = options.get("mishap", {}).get(str(party))
    if what == "hang":
        time.sleep(600)
    elif what == "slow":
        time.sleep(0.5)
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "die once":
        try:
            pathlib.Path(options["flag"]).touch(exist_ok=False)
        except FileExistsError:
            return None
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "secret":
        raise ValueError("patient 4711 has the value 0.25")
    elif what == "no":
        raise Refused(Refusal.BUDGET, "the budget of this party is spent")
    elif what == "no release":
        return {"sum": torch.zeros(3)}
    elif what == "of another":
        return Release(party + 1, {}, ())
    return None


def _meet(folder: pathlib.Path, party: int) -> bool:
    """True if another party answers at the same time: each waits a while for one more sign."""
    (folder / str(party)).touch()
    return wait_for(lambda: len(list(folder.iterdir())) > 1, 4.0)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds, for so long at most."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@dataclass
class Stage:
    """An engine, and the function that its server runs next."""

    engine: Engine
    parts: dict[str, Callable[[Ask], None]]
    compute: Compute = compute_here  # of the last job

    def play(self, part: Callable[[Ask], None], parties: int = 4, **options: Any) -> None:
        """Run `part(ask)` as the server."""
        name = f"part {len(self.parts)}"
        self.parts[name] = part
        self.engine.run(json.dumps({"seed": 1, "part": name, **options}), parties)

    def ask_all(self, who: Sequence[int], rounds: int = 3, **options: Any) -> list[Release]:
        """Ask `who` for some rounds, each with the sum of what came before."""
        out: list[Release] = []

        def part(ask: Ask) -> None:
            given = torch.zeros(int(options.get("size", 5)))
            for step in range(rounds):
                answers = ask(who, 2, Request(round=step, arrays={"given": given}))
                given = given + torch.stack([a.arrays["sum"] for a in answers]).sum(0)
                out.extend(answers)

        self.play(part, **options)
        return out


@contextlib.contextmanager
def open_stage(name: str, **settings: Any) -> Iterator[Stage]:
    """An engine with the fake parties."""
    parts: dict[str, Callable[[Ask], None]] = {}

    def serve(job: str, ask: Ask, _: StageCallback, compute: Compute) -> None:
        stage.compute = compute
        parts[json.loads(job)["part"]](ask)

    with open_engine(name, answer=answer, serve=serve, **settings) as engine:
        stage = Stage(engine, parts)
        yield stage


def plain(releases: Sequence[Release]) -> str:
    """Releases as a text that differs when a bit, a name, a type or the order does."""
    return repr(
        [
            (
                release.party,
                [
                    (name, str(t.dtype), tuple(t.shape), t.reshape(-1).view(torch.uint8).tolist())
                    for name, t in release.arrays.items()
                ],
                release.entries,
                list(release.scalars.items()),
            )
            for release in releases
        ]
    )


def same(a: Sequence[Release], b: Sequence[Release]) -> bool:
    """True if two lists of releases are equal to the bit and in order."""
    return plain(a) == plain(b)
