"""The metrics file has one final form, however it was reached."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsynth.core.errors import UserError
from fedsynth.storage.metrics import Metric, MetricsFile

rows = st.builds(
    Metric,
    method=st.sampled_from(["psg", "dp_sgd", 'od,d "name"']),
    epsilon=st.sampled_from([0.5, 1, 1.0, 10, math.inf]),
    seed=st.integers(0, 2),
    stage=st.integers(1, 12),
    metric=st.sampled_from(["accuracy", "steps", "accuracy_net_1"]),
    value=st.one_of(st.integers(-5, 10**12), st.floats(allow_nan=False)),
    unit=st.sampled_from(["", "record", "user"]),
    relation=st.sampled_from(["", "add_remove"]),
    delta=st.sampled_from([None, 1e-5, 0.1]),
    view=st.sampled_from(["", "server", "server, with a comma"]),
)
batches = st.lists(st.lists(rows, max_size=6), max_size=6)


def settled(batches: list[list[Metric]], *, crash: bool) -> bytes:
    """The file after these batches; with a crash: settled between, and with a torn tail."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.csv"
        for batch in batches:
            file = MetricsFile(path)
            file.add(batch)
            if crash and path.exists():
                with path.open("ab") as torn:
                    torn.write(b"psg,1.0,0,1,accu")
                MetricsFile(path).compact()
        file = MetricsFile(path)
        file.compact()
        return path.read_bytes() if path.exists() else b""


@settings(max_examples=40, deadline=None)
@given(batches)
def test_last_one_wins_and_rows_are_sorted(batches: list[list[Metric]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = MetricsFile(Path(folder) / "metrics.csv")
        for batch in batches:
            file.add(batch)
        naive: dict[tuple[str, float, int, int, str], Metric] = {}
        for row in [row for batch in batches for row in batch]:
            naive[(row.method, float(row.epsilon), row.seed, row.stage, row.metric)] = row
        expected = [Metric(*key, float(naive[key].value), *naive[key][6:]) for key in sorted(naive)]
        assert file.read() == expected
        file.compact()
        assert file.read() == expected


@settings(max_examples=12, deadline=None)
@given(batches)
def test_final_bytes_do_not_depend_on_crashes_or_repeats(batches: list[list[Metric]]) -> None:
    once = settled(batches, crash=False)
    assert settled(batches, crash=True) == once
    assert settled([*batches, *batches], crash=True) == once


def test_every_float_reads_back_as_itself(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    values = [0.1 + 0.2, 1e-300, -0.0, math.inf, 2**53 + 1]
    file.add(("m", 1, 0, i, "v", value) for i, value in enumerate(values))
    file.compact()
    assert [repr(row.value) for row in file.read()] == [repr(float(v)) for v in values]


def test_a_batch_with_a_bad_row_adds_nothing(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    with pytest.raises(ValueError, match="not a name"):
        file.add([("psg", 1, 0, 1, "accuracy", 0.5), ("psg\n", 1, 0, 1, "accuracy", 0.5)])
    assert file.read() == []


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n",
        b"method,epsilon,seed,stage,metric,value\npsg,x,0,1,a,1\n",
        b"method,epsilon,seed,stage,metric,value\npsg,1,0,1,a,1,record\n",
        b"method,epsilon,seed,stage,metric,value,unit,relation,delta,view\npsg,1,0,1,a,1,u,r,x,v\n",
        b"\xff\n",
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"metrics\.csv"):
        MetricsFile(tmp_path / "metrics.csv").compact()


def test_the_meaning_of_an_epsilon_comes_back(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.csv")
    row = Metric("psg", 1.0, 0, 1, "accuracy", 0.5, "record", "replace_one", 1e-5, "server")
    file.add([row])
    file.compact()
    assert file.read() == [row]
    header, line, _ = file.path.read_text().split("\n")
    assert header == "method,epsilon,seed,stage,metric,value,unit,relation,delta,view"
    assert line == "psg,1.0,0,1,accuracy,0.5,record,replace_one,1e-05,server"
    with pytest.raises(ValueError, match="meaning"):
        file.add([row._replace(view="a\nb")])


def test_files_that_end_with_the_value_are_read_and_extended_when_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    former = b"method,epsilon,seed,stage,metric,value\npsg,1.0,0,1,accuracy,0.5\n"
    path.write_bytes(former)
    old, new = Metric("psg", 1.0, 0, 1, "accuracy", 0.5), Metric("psg", 1.0, 0, 2, "steps", 3.0)
    assert MetricsFile(path).read() == [old]
    assert path.read_bytes() == former  # reading changes nothing
    known = new._replace(unit="user", relation="add_remove", delta=1e-6, view="public")
    MetricsFile(path).add([known])
    assert MetricsFile(path).read() == [old, known]
    path.write_bytes(former)
    MetricsFile(path).compact()
    assert path.read_bytes().endswith(b"psg,1.0,0,1,accuracy,0.5,,,,\n")
    assert MetricsFile(path).read() == [old]


def test_acknowledged_rows_survive_kill_9(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedsynth.storage.metrics import MetricsFile\n"
        "file = MetricsFile(Path(sys.argv[1]))\n"
        "for i in range(10**6):\n"
        "    file.add([('psg', 1.0, 0, i, m, i / 7) for m in ('accuracy', 'steps')])\n"
        "    print(i, flush=True)\n"
    )
    path = tmp_path / "metrics.csv"
    root = Path(__file__).parents[2]
    writer = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(50)]
    writer.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().splitlines()]
    writer.wait()
    writer.stdout.close()
    file = MetricsFile(path)
    file.compact()
    found = {(row.stage, row.metric): row.value for row in file.read()}
    for stage in acknowledged:
        assert found[(stage, "accuracy")] == found[(stage, "steps")] == stage / 7
    assert len(found) <= 2 * (len(acknowledged) + 1)
