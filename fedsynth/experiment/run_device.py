"""The device of a run, from its keys `device`, `num_gpus` and `engine`."""

from __future__ import annotations

from fedsynth.core.device import AUTO, CPU, CUDA, checked_device, resolved_device
from fedsynth.core.enums import EngineName
from fedsynth.core.errors import UserError
from fedsynth.experiment.run_config import RunConfig


def run_device(run: RunConfig) -> str:
    """The device of parties, server and evaluation: `cpu`, `cuda` or `cuda:N`.

    Reads no hardware, so that a run for another machine can be planned.

    Raises:
        UserError: The name is unknown, or does not fit the engine and its GPUs.
    """
    name = checked_device(run.device)
    if name == AUTO:
        return CUDA if run.num_gpus > 0 else CPU
    if name == CPU:
        if run.num_gpus > 0:
            raise UserError(
                f"device=cpu and num_gpus={run.num_gpus:g}: workers would hold GPUs that they "
                "do not use. Leave out one of both."
            )
        return CPU
    if run.engine != EngineName.INPROCESS:
        if run.num_gpus == 0:
            raise UserError(
                f"device={name} needs num_gpus above 0: engine={run.engine} hides the GPUs from "
                "workers that are given none. A fraction, such as num_gpus=0.25, shares one."
            )
        if name != CUDA:
            raise UserError(
                f"device={name}: engine={run.engine} chooses the GPU of each worker. Use "
                "device=cuda, or engine=inprocess."
            )
    return name


def require_device(run: RunConfig) -> None:
    """Refuse a GPU that this machine does not have, before anything is computed; a cluster's
    workers refuse for themselves.

    Raises:
        UserError: This machine cannot use the device of the run.
    """
    if run.address is None and run_device(run) != CPU and run.num_gpus == 0:
        resolved_device(run_device(run))
