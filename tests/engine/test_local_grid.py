"""The grid without a SuperLink keeps the contract of Flower's grids."""

from __future__ import annotations

import pytest
from altering_grid import AlteringGrid
from flwr.app import RecordDict


def test_the_grid_keeps_the_contract_of_flower():
    """Push and pull, ids, and replies that name their message."""
    grid = AlteringGrid('{"seed": 1}', 2, list)
    messages = [
        grid.create_message(RecordDict(), "query.party", node, "g") for node in grid.get_node_ids()
    ]
    ids = list(grid.push_messages(messages))
    assert len(set(ids)) == 2
    replies = list(grid.pull_messages(ids[::-1]))
    assert [reply.metadata.reply_to_message_id for reply in replies] == ids[::-1]
    assert list(grid.pull_messages(ids)) == []
    grid.set_run(grid.run)
    with pytest.raises(ValueError, match="no node 7"):
        grid.send_and_receive([grid.create_message(RecordDict(), "query.party", 7, "g")])
