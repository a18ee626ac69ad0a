"""The timeline of a run and the numbers beside it, from events with known times."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_pages import context

from fedsynth.report.elements import Picture, Table
from fedsynth.report.sections.timeline import timeline_section
from fedsynth.storage.run_directory import EVENTS, RunDirectory

JOB = "psg-eps1-seed0"


def event(
    kind: str, process: str, start: float, seconds: float, **facts: object
) -> dict[str, object]:
    common = {"kind": kind, "job": JOB, "stage": 1, "process": process, "memory": 2e9}
    return {**common, "start": 1e9 + start, "seconds": seconds, **facts}


EVENTS_OF_RUN = [
    event("round", "driver", 0.0, 10.0, parties=2, bytes_up=3e6, bytes_down=2e3),
    event("answer", "w1", 1.0, 5.0, noise_seconds=1.0),
    event("answer", "w2", 1.0, 9.0, noise_seconds=2.0),
    event("evaluation", "w1", 12.0, 8.0, accuracy=0.5),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def test_a_run_without_events_has_no_timeline(run: RunDirectory) -> None:
    assert timeline_section(context(run)) is None
    (run.path / EVENTS).write_text("[]\nbroken\n" + '{"kind": "answer"}\n')
    assert timeline_section(context(run)) is None


def test_the_section_states_utilisation_and_the_times_of_each_job(run: RunDirectory) -> None:
    run.add_events(EVENTS_OF_RUN)
    section = timeline_section(context(run))
    assert section is not None
    assert "2 processes worked 55% of 20 s" in str(section.content["text"])  # 22 of 40 seconds
    table = section.content["table"]
    assert isinstance(table, Table)
    (row,) = table.rows
    assert tuple(map(str, row.cells)) == (
        JOB, "1", "10 s", "14 s", "3.0 s", "6.0 s", "3 MB", "2 kB", "8.0 s", "2 GB",
    )  # fmt: skip
    picture = section.content["figure"]
    assert isinstance(picture, Picture)
    assert picture.data.count(b"<svg") == 1
    assert (run.path / "figures" / "timeline.png").is_file()


def test_work_that_overlaps_in_one_process_counts_once(run: RunDirectory) -> None:
    run.add_events(
        [*EVENTS_OF_RUN, event("answer", "w2", 2.0, 3.0), event("answer", "w2", 9.0, 3.0)]
    )
    section = timeline_section(context(run))
    assert section is not None
    assert "worked 60% of" in str(section.content["text"])  # 24 of 40 seconds
