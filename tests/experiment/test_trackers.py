import sys
import types

import pytest

from fedsynth.core.errors import UserError
from fedsynth.experiment.trackers import open_trackers

ROUND = {"kind": "round", "job": "psg-eps1-seed0", "stage": 1, "round": 4, "seconds": 0.5}
EVALUATION = {
    "kind": "evaluation",
    "job": "psg-eps1-seed0",
    "stage": 2,
    "classifier": "convnet",
    "repetition": 0,
    "accuracy": 0.75,
    "losses": [[1, 2.5], [11, 1.5]],
    "accuracies": [[20, 0.75]],
}


def fake_package(monkeypatch, name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_module_of_your_own_receives_each_event_and_is_closed(monkeypatch, tmp_path):
    seen = []
    own = types.SimpleNamespace(event=seen.append, close=lambda: seen.append("closed"))
    fake_package(monkeypatch, "my_tracker", tracker=lambda folder: seen.append(folder) or own)
    with open_trackers(["my_tracker"], tmp_path) as (tracker,):
        tracker.event(ROUND)
    assert seen == [tmp_path, ROUND, "closed"]


def test_mlflow_and_wandb_receive_curves_by_step(monkeypatch, tmp_path):
    logged = []
    fake_package(
        monkeypatch,
        "mlflow",
        start_run=lambda *, run_name: logged.append(run_name),
        log_metrics=lambda values, step: logged.append((step, values)),
        end_run=lambda: logged.append("end"),
    )
    run = types.SimpleNamespace(log=logged.append, finish=lambda: logged.append("finish"))
    fake_package(monkeypatch, "wandb", init=lambda **_: run)
    with open_trackers(["mlflow", "wandb"], tmp_path) as trackers:
        for tracker in trackers:
            tracker.event(ROUND)
            tracker.event(EVALUATION)
            tracker.event({"kind": "answer", "party": 3})
    name = "psg-eps1-seed0/stage 2/convnet 1"
    assert logged[:6] == [
        tmp_path.name,
        (4, {"psg-eps1-seed0/stage 1/seconds per round": 0.5}),
        (1, {f"{name}/losses": 2.5}),
        (11, {f"{name}/losses": 1.5}),
        (20, {f"{name}/accuracies": 0.75}),
        (0, {f"{name}/accuracy": 0.75}),
    ]
    assert logged[7] == {f"{name}/losses": 2.5, "at step": 1}
    assert logged[-2:] == ["finish", "end"]


def test_tensorboard_writes_a_file_that_holds_the_curves(tmp_path):
    if "tensorboard" not in sys.modules:
        try:
            from torch.utils.tensorboard import SummaryWriter  # noqa: F401
        except ImportError:
            with (
                pytest.raises(UserError, match=r"tracker=tensorboard needs .* pip install"),
                open_trackers(["tensorboard"], tmp_path),
            ):
                pass
            return
    with open_trackers(["tensorboard"], tmp_path) as (tracker,):
        tracker.event(EVALUATION)
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"psg-eps1-seed0/stage 2/convnet 1/losses" in file.read_bytes()


def test_an_unknown_tracker_is_named_with_what_there_is(tmp_path):
    with (
        pytest.raises(UserError, match=r"unknown tracker 'tensorbord'.*tensorboard"),
        open_trackers(["tensorbord"], tmp_path),
    ):
        pass
