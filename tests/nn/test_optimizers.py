"""Optimizers take the steps of torch.optim and leave its compiler out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from fedsynth.nn import optimizers

SETTINGS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "fused": True}),
    ("Adam", {"lr": 0.01, "betas": (0.5, 0.9)}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.1, "fused": True}),
    ("RMSprop", {"lr": 0.01}),
]


def trained(module: Any, name: str, settings: dict[str, Any], *, halt: bool) -> list[torch.Tensor]:
    """The weights after six steps; `halt`: a second optimizer goes on from the first state."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in (3, (2, 3))]
    one = getattr(module, name)(weights[:1], **settings)
    one.add_param_group({"params": weights[1:], "lr": 0.02})
    for step in range(6):
        one.zero_grad()
        assert weights[0].grad is None
        (weights[1] @ weights[0]).square().sum().backward()
        one.step()
        if halt and step == 2:
            state = one.state_dict()
            one = getattr(module, name)([{"params": [w]} for w in weights], **settings)
            one.load_state_dict(state)
    return [weight.detach() for weight in weights]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
@pytest.mark.parametrize("halt", [False, True])
def test_steps_are_those_of_torch_to_the_bit(name: str, settings: dict[str, Any], halt: bool):
    ours = trained(optimizers, name, settings, halt=halt)
    theirs = trained(torch.optim, name, settings, halt=False)
    assert all(map(torch.equal, ours, theirs))
    assert issubclass(getattr(optimizers, name), getattr(torch.optim, name))


def test_a_process_that_trains_does_not_import_the_compiler():
    code = (
        "import sys, torch\n"
        "from torch.optim.lr_scheduler import OneCycleLR\n"
        "from fedsynth.nn import optimizers\n"
        "weight = torch.nn.Parameter(torch.ones(2))\n"
        f"for name in {[name for name, _ in SETTINGS]}:\n"
        "    one = getattr(optimizers, name)([weight], lr=.1)\n"
        "    cycle = OneCycleLR(one, .1, total_steps=3, cycle_momentum=False)\n"
        "    one.zero_grad()\n"
        "    weight.square().sum().backward()\n"
        "    one.step()\n"
        "    cycle.step()\n"
        "    one.load_state_dict(one.state_dict())\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
