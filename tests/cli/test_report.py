"""`fedsynth report`: the command prints the file that it wrote, and each mistake is one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedsynth.cli.report import main
from fedsynth.storage.metrics import Metric
from fedsynth.storage.run_directory import RunDirectory


def test_the_command_prints_the_file_to_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory.create(tmp_path / "runs" / "one")
    run.write_config({"data": "mnist"})
    run.add_metrics([Metric("psg", 1.0, 0, 1, "accuracy", 0.5)])
    for form in ("html", "md"):
        assert main([str(tmp_path / "runs"), "--format", form]) == 0
        assert Path(capsys.readouterr().out.strip()) == tmp_path / "runs" / f"index.{form}"
        assert "0.500" in (tmp_path / "runs" / f"index.{form}").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "nothing does not exist"),
        (["."], "is no run and holds none"),
        ([".", "--format", "tex"], "latex"),
        ([".", "--fromat", "md"], "Did you mean '--format'?"),
    ],
)
def test_a_mistake_is_one_message(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as left:
        code = int(str(left.code))
    assert code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert list(tmp_path.iterdir()) == []
