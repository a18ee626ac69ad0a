"""Private parts of Flower: the description of a run, the identity of a process, message ids.

Tested with flwr 1.41; the project pins that range. Only this file, `flower_simulation`,
`flower_node` and `flower_commands` use what is private or deprecated in Flower, so an upgrade of
Flower is an upgrade of these four. `flwr run` and a plain SuperNode take the apps as they are.
"""

from __future__ import annotations

import os
import uuid

from flwr.app import Message
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

__all__ = ["LOCAL_RUN", "Run", "identify_process", "local_run", "quiet_flower", "stamp"]

LOCAL_RUN = 1
_SERVER_NODE = 1


def quiet_flower() -> None:
    """Switch off Flower's telemetry, update check and installation of packages, also in child
    processes."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    os.environ["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] = "1"
    os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"


def identify_process() -> None:
    """Set the author of messages of this process, unless a Flower runtime has set it."""
    if TaskIdentity._run_id is None:
        TaskIdentity.run_id = LOCAL_RUN
        TaskIdentity.task_id = 1
        TaskIdentity.node_id = _SERVER_NODE


def local_run() -> Run:
    """The description of a run without a SuperLink."""
    return Run.create_empty(LOCAL_RUN)


def stamp(message: Message) -> str:
    """Give a message an id, as a SuperLink would, so that its reply can name it."""
    message_id = uuid.uuid4().hex
    message.metadata.__dict__["_message_id"] = message_id
    return message_id
