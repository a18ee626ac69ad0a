"""The nodes of a cluster, as the driver and the workers see them."""

from __future__ import annotations

from typing import NamedTuple

import ray


class WorkerPlace(NamedTuple):
    """The place of a worker.

    Attributes:
        node: The id of its node.
        name: The name of the node, for messages.
        disk: The identity of the disk of the run directory there; empty: not asked.
        unfit: Why parties cannot answer there; empty if they can.
    """

    node: str
    name: str
    disk: str = ""
    unfit: str = ""


NO_PLACE = WorkerPlace("", "")


def is_alive(node: str) -> bool:
    """True if the node of this id is part of the cluster."""
    return any(row["NodeID"] == node and row["Alive"] for row in ray.nodes())


def this_node() -> tuple[str, str]:
    """The id of this process's node and its name for messages."""
    node = ray.get_runtime_context().get_node_id()
    for row in ray.nodes():
        if row["NodeID"] == node:
            address, name = row["NodeManagerAddress"], row.get("NodeName", "")
            return node, name if name and name != address else f"{address} ({node[:6]})"
    return node, node[:6]


def workers_that_fit(num_cpus: float, num_gpus: float) -> int:
    """The number of workers of this size that the nodes of the cluster have room for."""
    total = 0
    for row in ray.nodes():
        if row["Alive"]:
            room = [
                row["Resources"].get(kind, 0.0) // wanted
                for kind, wanted in (("CPU", num_cpus), ("GPU", num_gpus))
                if wanted > 0
            ]
            total += int(min(room, default=1))
    return total
