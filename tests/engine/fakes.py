"""A fake method for the engine's tests: parties that add keyed noise, and curators that listen."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import time

import torch

from fedsynth.core import Release, Request
from fedsynth.errors import UserError
from fedsynth.randomness import numpy_generator, torch_generator


def answer(job: str, party: int, stage: int, request: Request) -> Release:
    """Noise keyed by job, party, stage and round, added to what the curator sent; or a mishap."""
    options = json.loads(job)
    _mishap(options, party, request)
    key = (options["seed"], party, stage, request.round)
    size = int(options.get("size", 5))
    noise = torch.randn(size, generator=torch_generator(*key))
    given = request.arrays.get("given", torch.zeros(size))
    matrix = noise.outer(noise)[:64, :64]
    arrays = {
        "sum": given + noise,
        "product": matrix @ matrix.T,
        "double": torch.from_numpy(numpy_generator(*key).normal(size=3)),
        "label": torch.tensor(party),
        "pixels": torch.arange(party % 7, dtype=torch.uint8),
    }
    numbers = {"party": party, "threads": torch.get_num_threads(), "kind": request.kind}
    return Release(party, arrays, (f"{party}-{stage}-{request.round}",), numbers)


def _mishap(options: dict, party: int, request: Request) -> None:
    """What goes wrong in this party, if anything: {"mishap": {"2": "hang"}}."""
    what = options.get("mishap", {}).get(str(party))
    if what == "hang":
        time.sleep(600)
    elif what == "slow":
        time.sleep(0.4)
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "die once":
        try:
            pathlib.Path(options["flag"]).touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "secret":
        raise ValueError("patient 4711 has the value 0.25")
    elif what == "no":
        raise UserError("the budget of this party is spent")
