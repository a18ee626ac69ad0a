"""Wrong words on the command line: one message that teaches, exit code 2, nothing on the disk.

`wrong_inputs.txt` is the table: a command line, and the beginning of its message. Commands run in
this process through the same entry as the installed one; a few run in processes of their own."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import call

from fedsynth.cli.run import main, tolerate_terminal

TABLE = Path(__file__).with_name("wrong_inputs.txt")
LINES = [
    tuple(line.split(" => "))
    for line in TABLE.read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
MOST_SECONDS = 5.0  # of processor time
RUN = "scenario=classification data=shapes engine=inprocess"

# words, and parts of the message
WRONG = [
    ("method=PSG", "unknown method 'PSG'. Did you mean 'psg'?"),
    ("epsilon=1,,2", "epsilon=1,,2 has an empty item"),
    ("epsilon=1,", "epsilon=1, has an empty item"),
    ("epsilon=1 epsilon=2", "epsilon= is given twice"),
    ("psg.spc=3 psg.spc=4 method=psg", "psg.spc= is given twice"),
    ("parties=1000000000", "parties=1000000000 must be at most 1,000,000"),
    ("resize=100000", "resize=100000 must be at most 1,024"),
    ("evaluation.width=1000000", "evaluation.width=1000000 must be a whole number from 1 to 4096"),
    ("evaluation.nets=-1", "evaluation.nets=-1 must be a whole number from 0 to"),
    ("method=ldpdc ldpdc.spc=1000000000", "ldpdc.spc=1000000000 must be at most 1,000,000"),
    ("data=x.npz", "a file is named data=file:x.npz"),
    ("seed=1.5", "seed=1.5 is not a whole number"),
    ("seed=true", "seed=True is not a whole number"),
    ("delta=2", "delta=2.0 must be below 1"),
    ("workers=0", "workers=0 must be at least 1"),
    ("scenario=clasification", "Did you mean 'classification'?"),
    ("method=ldpdc ldpdc.noise=0.01 epsilon=1", "ldpdc.noise=0.01 costs epsilon="),
]


@pytest.fixture(scope="module")
def wrong_files(tmp_path_factory) -> Path:
    """The files that the lines of the table name."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "empty_dir").mkdir()
    texts = {
        "a_list.yaml": "- 1\n- 2\n",
        "broken.yaml": "a: [1\n",
        "unknown_key.yaml": "dat: shapes\n",
        "bad_preset.yaml": "presets: {tiny: {}}\n",
        "bad_type.yaml": "parties: many\n",
        "notes.txt": "hello\n",
        "broken.npz": "hello\n",
        "empty.jsonl": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.yaml").write_bytes(bytes([0x7F, 0x45, 0xD0, 0x00, 0xFF]))
    return folder


def test_the_table_has_three_hundred_different_lines() -> None:
    assert len({words for words, _ in LINES}) == len(LINES) >= 300


@pytest.mark.parametrize(("words", "message"), LINES, ids=[words for words, _ in LINES])
def test_each_line_of_the_table_is_answered_with_its_message(
    words: str, message: str, wrong_files: Path, monkeypatch
) -> None:
    monkeypatch.chdir(wrong_files)
    before = sorted(wrong_files.rglob("*"))
    start = time.process_time()
    called = call(shlex.split(words))
    assert time.process_time() - start < MOST_SECONDS
    assert called.code == 2
    assert called.err.startswith(f"error: {message}")
    assert called.err.count("error: ") == 1
    assert "Traceback" not in called.err + called.out
    assert sorted(wrong_files.rglob("*")) == before


@pytest.mark.parametrize(
    "words", ["run classification data=shaps --plan", "ledger shw x", "fetch mnits"]
)
def test_a_process_of_its_own_answers_in_the_same_way(words: str, wrong_files: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedsynth", *words.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=wrong_files,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "Did you mean" in line


@pytest.mark.parametrize(("words", "message"), WRONG)
@pytest.mark.parametrize("plan", [True, False])
def test_a_wrong_word_is_answered_with_one_message(
    words: str, message: str, plan: bool, tmp_path: Path, capsys
) -> None:
    given = [*words.split(), f"out={tmp_path / 'run'}"]
    fixed = [word for word in RUN.split() if word.split("=")[0] not in words]
    assert main([*fixed, *given, *(["--plan"] if plan else [])]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("error:") == 1
    assert "Traceback" not in error
    assert "--resume" not in error
    assert not (tmp_path / "run").exists()


def test_a_large_whole_number_keeps_all_its_digits(capsys) -> None:
    words = [*RUN.split(), "method=upper_bound", "seed=9007199254740993", "--plan"]
    assert main(words) == 0
    from fedsynth.experiment.config import parse_overrides, resolve

    assert resolve(parse_overrides(words[:-1])).run.seed == (9007199254740993,)


def test_numbers_inside_a_mapping_are_numbers() -> None:
    from fedsynth.experiment.config import parse_overrides

    assert parse_overrides(["options={alpha: 1e-1, order: [1e2, 3]}"]) == {
        "options": {"alpha": 0.1, "order": [100.0, 3]}
    }


def test_a_terminal_without_greek_letters_gets_replacements(monkeypatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    tolerate_terminal()
    print("ε")
    sys.stdout.flush()
    assert raw.getvalue() == b"?\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("data=shapes", "One party holds shapes and releases"),
        (
            "data=shapes parties=3 partition=iid stages=together",
            "3 parties hold shapes, divided by iid, and release at once",
        ),
        ("method=psg", "One party holds all of MNIST"),
    ],
)
def test_the_sentence_of_a_run_is_about_its_own_data(words: str, sentence: str) -> None:
    from fedsynth.experiment.config import parse_overrides, resolve

    config = resolve(parse_overrides(["scenario=classification", *words.split()]))
    assert config.about.startswith(sentence)
