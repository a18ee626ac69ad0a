"""torch's optimizers, free of its compiler.

Each class of torch.optim imports torch._dynamo at its first step, which costs a process 1.2 s of
processor time, to tell a compiler where to stop. Nothing is compiled here. These classes have the
same settings, take the same steps to the bit, and leave the compiler out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


def _unwrapped(function: Callable[..., Any]) -> Any:
    """A function of torch.optim without the decorators that import the compiler."""
    return inspect.unwrap(function)


def _eager(step: Callable[..., Any]) -> Any:
    """The step of an optimizer, itself outside of any graph, as torch.optim takes it."""
    return torch.no_grad()(_unwrapped(step))


class _Optimizer(torch.optim.Optimizer):
    """The functions that all optimizers share."""

    add_param_group = _unwrapped(torch.optim.Optimizer.add_param_group)
    load_state_dict = _unwrapped(torch.optim.Optimizer.load_state_dict)
    state_dict = _unwrapped(torch.optim.Optimizer.state_dict)
    zero_grad = _unwrapped(torch.optim.Optimizer.zero_grad)


class SGD(_Optimizer, torch.optim.SGD):
    """`torch.optim.SGD`."""

    step = _eager(torch.optim.SGD.step)


class Adam(_Optimizer, torch.optim.Adam):
    """`torch.optim.Adam`."""

    step = _eager(torch.optim.Adam.step)


class AdamW(_Optimizer, torch.optim.AdamW):
    """`torch.optim.AdamW`."""

    step = _eager(torch.optim.AdamW.step)


class RMSprop(_Optimizer, torch.optim.RMSprop):
    """`torch.optim.RMSprop`."""

    step = _eager(torch.optim.RMSprop.step)
