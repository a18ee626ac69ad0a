from pathlib import Path

import pytest

from fedsynth.storage.message_log import MessageReader, send_message


def test_each_message_is_read_once_and_in_order(tmp_path: Path) -> None:
    reader = MessageReader(tmp_path / "m")
    assert reader.new() == []
    reader.start()
    for number in range(3):
        send_message(tmp_path / "m", {"number": number})
    assert [message["number"] for message in reader.new()] == [0, 1, 2]
    assert reader.new() == []
    send_message(tmp_path / "m", {"number": 3})
    assert reader.new() == [{"number": 3}]


def test_other_processes_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    send_message(tmp_path / "m", {"from": 1})
    monkeypatch.setattr("os.getpid", lambda: 2)
    send_message(tmp_path / "m", {"from": 2})
    assert len(list((tmp_path / "m").iterdir())) == 2
    reader = MessageReader(tmp_path / "m")
    assert sorted(message["from"] for message in reader.new()) == [1, 2]


def test_a_line_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    send_message(tmp_path, {"number": 0})
    (file,) = tmp_path.iterdir()
    reader = MessageReader(tmp_path)
    with open(file, "ab") as half:
        half.write(b'{"number"')
    assert reader.new() == [{"number": 0}]
    with open(file, "ab") as half:
        half.write(b': 1}\nno message\n[1]\n{"number": 2}\n')
    assert reader.new() == [{"number": 1}, {"number": 2}]


def test_messages_stop_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    send_message(tmp_path / "file", {})
    send_message(tmp_path / "nobody reads", {})
    assert not (tmp_path / "nobody reads").exists()
    assert MessageReader(tmp_path / "file").new() == []


def test_a_removed_folder_starts_anew(tmp_path: Path) -> None:
    reader = MessageReader(tmp_path / "m")
    reader.start()
    send_message(tmp_path / "m", {"a": 1})
    reader.new()
    reader.remove()
    assert not (tmp_path / "m").exists()
    reader.start()
    send_message(tmp_path / "m", {"b": 2})
    assert reader.new() == [{"b": 2}]
