"""The watch over a head node: an answer keeps it quiet, short silence too, long silence ends it."""

from __future__ import annotations

import threading
from concurrent import futures

import grpc
import pytest
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

from fedsynth.engine.ray import head_node
from fedsynth.engine.ray.head_node import HeadWatch, check_alive, end_process


class Head(gcs_service_pb2_grpc.NodeInfoGcsServiceServicer):
    """A head node that counts the questions."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)

    def CheckAlive(self, request, context):
        self.asked.release()
        return gcs_service_pb2.CheckAliveReply()


@pytest.fixture
def head():
    """A head node that answers, its server and its address."""
    server, answering = grpc.server(futures.ThreadPoolExecutor(1)), Head()
    gcs_service_pb2_grpc.add_NodeInfoGcsServiceServicer_to_server(answering, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield answering, server, address
    server.stop(None)


def test_a_silent_head_node_is_lost_after_patience_and_not_before(head) -> None:
    answering, server, address = head
    lost, told = threading.Event(), []

    def on_lost(where: str, silent: float) -> None:
        told.append((where, silent))
        lost.set()

    watch = HeadWatch(address, on_lost, patience=0.5, interval=0.02)
    for _ in range(40):  # .8 s of answers, which is longer than the patience
        assert answering.asked.acquire(timeout=10)
    assert not told
    server.stop(None).wait()
    assert lost.wait(20)
    ((where, silent),) = told
    assert where == address
    assert silent >= 0.5
    watch.close()
    with pytest.raises(grpc.RpcError):
        check_alive(address)


def test_a_closed_watch_tells_nothing(head) -> None:
    answering, server, address = head
    told = []
    watch = HeadWatch(address, lambda *found: told.append(found), patience=0.1, interval=0.02)
    assert answering.asked.acquire(timeout=10)
    watch.close()
    server.stop(None).wait()
    watch._thread.join(10)
    assert not watch._thread.is_alive()
    assert not told


def test_the_process_ends_with_the_way_to_go_on(monkeypatch, capsys) -> None:
    codes = []
    monkeypatch.setattr(head_node.os, "_exit", codes.append)
    end_process("10.0.0.1:6379", 31.2)
    assert codes == [2]
    message = capsys.readouterr().err
    assert "head node of the Ray cluster at 10.0.0.1:6379 has not answered for 31 s" in message
    assert "--resume" in message
