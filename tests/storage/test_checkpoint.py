"""Rounds: interrupted anywhere, killed, damaged, without space - and still the same result."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.core.randomness import torch_generator
from fedsynth.storage import files
from fedsynth.storage.checkpoint import rounds

ROOT = Path(__file__).parents[2]


class Interrupted(Exception):
    """Stands for whatever ends a run."""


def fresh_state() -> dict:
    """A state with one of everything a method may keep."""
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    return {
        "images": torch.zeros(4, 3),
        "model": model,
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.1),
        "count": 0,
        "best": 0.0,
        "flag": False,
        "name": "",
        "history": [],
        "nested": {"steps": torch.zeros(2, dtype=torch.int64), "pair": (1, "a")},
    }


def one_round(step: int, state: dict) -> None:
    """Change everything in the state, with randomness keyed by the round."""
    noise = torch.randn(4, 3, generator=torch_generator("round", step))
    state["images"] += noise
    loss = (state["model"](state["images"]) - 1).square().sum()
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    state["count"] += step
    state["best"] = max(state["best"], float(loss.detach()))
    state["flag"] = not state["flag"]
    state["name"] += str(step)
    state["history"].append(noise[0])
    state["nested"]["steps"] += step
    state["nested"]["pair"] = (step, "b")


def same(a: object, b: object) -> bool:
    """Equality to the bit, through containers and objects."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "state_dict") and hasattr(b, "state_dict"):
        return same(dict(a.state_dict()), dict(b.state_dict()))
    return type(a) is type(b) and a == b


def uninterrupted(n: int) -> dict:
    """The result of the plain loop."""
    state = fresh_state()
    for step in range(n):
        one_round(step, state)
    return state


def run(n: int, path: Path, stop_before: int | None = None, every: float = 0.0) -> tuple:
    """Run, perhaps up to an interruption; returns the state and the rounds that were done."""
    state, done = fresh_state(), []
    with contextlib.suppress(Interrupted):
        for step in rounds(n, state, path, fingerprint="f", every_seconds=every):
            if step == stop_before:
                raise Interrupted
            one_round(step, state)
            done.append(step)
    return state, done


@given(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3), st.sampled_from([0.0, 60.0]))
@settings(max_examples=25, deadline=None)
def test_interrupted_runs_end_like_uninterrupted_ones(n, stops, every):
    """Wherever it is interrupted, and however often: the same state, to the bit."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "check"
        for stop in stops:
            run(n, path, stop, every)
        state, _ = run(n, path, every=every)
        assert same(state, uninterrupted(n))
        if n:
            again, done = run(n, path)
            assert done == []
            assert same(again, uninterrupted(n))


def test_resumes_after_the_last_saved_round_and_in_place(tmp_path):
    """Nothing is done twice that was saved, and what others hold on to stays what they hold."""
    _, done = run(5, tmp_path / "c", stop_before=3)
    assert done == [0, 1, 2]
    state = fresh_state()
    held = {key: state[key] for key in ("images", "model", "optimizer", "history", "nested")}
    steps = []
    seen = []
    loop = rounds(
        5, state, tmp_path / "c", fingerprint="f", on_step=lambda done, n: seen.append((done, n))
    )
    for step in loop:
        assert all(state[key] is value for key, value in held.items())
        steps.append(step)
    assert steps == [3, 4]
    assert seen == [(3, 5), (4, 5), (5, 5)]
    weights = next(iter(held["model"].parameters()))
    assert held["optimizer"].param_groups[0]["params"][0] is weights


def test_saves_no_more_often_than_told_and_at_the_end(tmp_path):
    """Between the first and the last round nothing is written when time has not passed."""
    path, writes = tmp_path / "c", []
    state = fresh_state()
    for step in rounds(4, state, path, fingerprint="f", every_seconds=3600):
        writes.append(path.exists())
        one_round(step, state)
    assert writes == [False] * 4
    assert path.exists()


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "garbage"])
def test_damage_is_noticed_and_the_previous_checkpoint_used(tmp_path, damage):
    """Damage costs rounds, with a warning, and never a wrong state."""
    path = tmp_path / "c"
    run(4, path)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 1
    bad = {
        "truncate": good[: len(good) // 2],
        "flip": bytes(flipped),
        "empty": b"",
        "garbage": b"not a checkpoint",
    }[damage]
    path.write_bytes(bad)
    with pytest.warns(UserWarning, match="damaged"):
        state, done = run(4, path)
    assert done == [3]
    assert same(state, uninterrupted(4))
    path.write_bytes(bad)
    path.with_name("c.previous").write_bytes(bad)
    with pytest.warns(UserWarning, match="damaged"):
        state, done = run(4, path)
    assert done == [0, 1, 2, 3]
    assert same(state, uninterrupted(4))


def test_missing_newest_file_is_no_damage(tmp_path):
    """A crash between the two renames leaves only the previous file: used without a word."""
    run(4, tmp_path / "c")
    (tmp_path / "c").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, done = run(4, tmp_path / "c")
    assert done == [3]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    """The fingerprint says whose state it is."""
    run(2, tmp_path / "c")
    with pytest.raises(UserError, match="another run"):
        list(rounds(2, fresh_state(), tmp_path / "c", fingerprint="g"))
    with pytest.raises(UserError, match="2 rounds"):
        list(rounds(1, fresh_state(), tmp_path / "c", fingerprint="f"))


def test_no_code_is_loaded_from_a_checkpoint(tmp_path):
    """A checkpoint refuses values that it cannot store safely."""
    with pytest.raises(TypeError, match=r"odd\[0\]"):
        list(rounds(1, {"odd": [object()]}, tmp_path / "c", fingerprint="f"))


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A folder with room for one checkpoint: a real tmpfs where we may mount, else a fake."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0
    if not mounted:
        limit_writes(monkeypatch, 64 * 1024)
    yield folder
    if mounted:
        subprocess.run(["umount", str(folder)], check=True)


def limit_writes(monkeypatch, size: int) -> None:
    """Let every file opened for writing be full at `size` bytes."""

    def open_small(path, mode="r", *args, **kwargs):
        file = open(path, mode, *args, **kwargs)  # noqa: SIM115 - closed by its own `with`
        if "w" not in mode:
            return file
        plain_write = file.write

        class Small:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                file.close()

            def __getattr__(self, name):
                return getattr(file, name)

            def write(self, data):
                if file.tell() + len(data) > size:
                    raise OSError(28, "No space left on device")
                return plain_write(data)

        return Small()

    monkeypatch.setattr(files, "open", open_small, raising=False)


@pytest.mark.parametrize("faked", [False, True])
def test_a_full_disk_is_a_user_error_and_keeps_what_was_saved(request, tmp_path, faked):
    """The message says what to do, and the run goes on from the old checkpoint afterwards."""
    if faked:
        limit_writes(request.getfixturevalue("monkeypatch"), 64 * 1024)
        path = tmp_path / "c"
    else:
        path = request.getfixturevalue("small_disk") / "c"

    def grow(state: dict) -> None:
        for step in rounds(4, state, path, fingerprint="f", every_seconds=0):
            state["data"] = torch.full((20_000 if step >= 2 else 1_000,), float(step))

    with pytest.raises(UserError, match=r"cannot be written.*[Ss]pace"):
        grow({"data": torch.zeros(1)})
    state = {"data": torch.zeros(1)}
    assert next(iter(rounds(4, state, path, fingerprint="f"))) == 2
    assert torch.equal(state["data"], torch.full((1_000,), 1.0))
    assert sorted(p.name for p in path.parent.iterdir()) == ["c", "c.previous"]


_KILLED = """
import sys, time
sys.path[:0] = sys.argv[3:]
import test_checkpoint as t
from fedsynth.storage.checkpoint import rounds
state = t.fresh_state()
for step in rounds(40, state, sys.argv[1], fingerprint="f", every_seconds=0):
    t.one_round(step, state)
    print(step, flush=True)
"""


def test_kill_9_at_any_moment(tmp_path):
    """A real kill -9 in the middle of saving and computing, twice; then the run ends as ever."""
    path = tmp_path / "c"
    command = [
        sys.executable,
        "-c",
        _KILLED,
        str(path),
        "-",
        str(Path(__file__).parent),
        str(ROOT),
    ]
    seen: list[int] = []
    for rounds_to_see, delay in ((3, 0.003), (4, 0.0005)):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(rounds_to_see):
            seen.append(int(process.stdout.readline()))
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert seen[3] in (seen[2], seen[2] + 1, seen[2] + 2, seen[2] + 3)
    assert seen[3] >= seen[2]
    state, done = run(40, path)
    assert done[0] > 0
    assert same(state, uninterrupted(40))
