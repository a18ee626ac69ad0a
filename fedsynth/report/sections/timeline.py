"""Section of time: the timeline of the run's processes and how busy they were, from its events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fedsynth.core.text import bytes_text
from fedsynth.experiment.events import ANSWER, EVALUATION, ROUND
from fedsynth.experiment.progress import duration
from fedsynth.report.elements import Cell, Column, ReportContext, Row, Section, Table
from fedsynth.report.figure_files import embedded
from fedsynth.report.figures import Theme, grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Event = dict[str, Any]
Span = tuple[float, float]  # start and end in seconds
MAX_BARS = 500  # per process and kind: neighbours are joined beyond
_WORK = {ANSWER: "parties", EVALUATION: "evaluation"}
_COLUMNS = (
    Column("Job", "label"),
    Column("Rounds"),
    Column("In rounds", title="seconds of the server's requests until the last answer"),
    Column("Parties", title="seconds of computing, summed over parties"),
    Column("of it noise"),
    Column("Waiting", title="seconds of rounds in which a party did not compute, summed"),
    Column("Uploaded", title="bytes of the arrays of all answers"),
    Column("Downloaded"),
    Column("Evaluation", title="seconds, summed over classifiers"),
    Column("Memory", title="the most that one process held"),
)


def timeline_section(context: ReportContext) -> Section | None:
    """None if the run has no events: one of an earlier version, or on real nodes."""
    events = [event for event in context.run.events() if _complete(event)]
    lanes = _lanes(events)
    if not lanes:
        return None
    busy = sum(_length(spans) for lane in lanes.values() for spans in [_joined(lane)])
    whole = _length([(min(map(_start, events)), max(map(_end, events)))])
    utilisation = busy / (len(lanes) * whole) if whole else 1.0
    processes = f"{len(lanes)} process" + ("es" if len(lanes) > 1 else "")
    text = (
        f"{processes} worked {utilisation:.0%} of {duration(whole)}, from the first request to the "
        "last evaluation. Times of parties are known in a simulation only."
    )

    def draw(theme: Theme) -> Figure:
        return _figure(lanes, min(map(_start, events)), theme)

    picture = embedded(context, "timeline", f"Timeline: {text}", draw)
    jobs = sorted({str(event["job"]) for event in events})
    rows = [_row(job, [event for event in events if event["job"] == job]) for job in jobs]
    table = Table("Time and traffic of each job, from events.jsonl", _COLUMNS, rows)
    content = {"text": text, "figure": picture, "table": table}
    return Section("timeline", "Time and utilisation", content, "Time")


def _complete(event: Event) -> bool:
    numbers = all(isinstance(event.get(key), int | float) for key in ("start", "seconds"))
    return numbers and {"kind", "job", "process"} <= set(event)


def _start(event: Event) -> float:
    return float(event["start"])


def _end(event: Event) -> float:
    return float(event["start"] + event["seconds"])


def _lanes(events: Iterable[Event]) -> dict[str, list[tuple[str, Span]]]:
    """The work of each process: its kind with its span, in the order of processes."""
    lanes: dict[str, list[tuple[str, Span]]] = defaultdict(list)
    for event in events:
        if event["kind"] in _WORK:
            lanes[str(event["process"])].append((event["kind"], (_start(event), _end(event))))
    return dict(sorted(lanes.items()))


def _joined(lane: Sequence[tuple[str, Span]], gap: float = 0.0) -> list[Span]:
    """Spans that do not overlap and are more than `gap` apart."""
    found: list[Span] = []
    for start, end in sorted(span for _, span in lane):
        if found and start <= found[-1][1] + gap:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _length(spans: Iterable[Span]) -> float:
    return sum(end - start for start, end in spans)


def _row(job: str, events: Sequence[Event]) -> Row:
    kinds = {kind: [e for e in events if e["kind"] == kind] for kind in (ROUND, ANSWER, EVALUATION)}
    rounds, answers = kinds[ROUND], kinds[ANSWER]

    def total(key: str, some: Iterable[Event]) -> float:
        return sum(float(event.get(key, 0)) for event in some)

    in_rounds, computing = total("seconds", rounds), total("seconds", answers)
    waiting = sum(float(e["seconds"]) * int(e.get("parties", 0)) for e in rounds) - computing
    seconds = (in_rounds, computing, total("noise_seconds", answers), max(0.0, waiting))
    traffic = (total("bytes_up", rounds), total("bytes_down", rounds))
    memory = max(float(event.get("memory", 0)) for event in events)
    return Row(
        (
            job,
            f"{len(rounds):,}",
            *(Cell(duration(value), order=value) for value in seconds),
            *(Cell(bytes_text(value), order=value) for value in traffic),
            Cell(duration(total("seconds", kinds[EVALUATION])), order=total("seconds", answers)),
            Cell(bytes_text(memory), order=memory),
        )
    )


def _figure(lanes: dict[str, list[tuple[str, Span]]], origin: float, theme: Theme) -> Figure:
    """A bar per span of work, one row per process."""
    figure, (axes,) = grid(1, 1, (7.5, 1.2 + 0.28 * len(lanes)), theme)
    last = max(end for lane in lanes.values() for _, (_, end) in lane)
    gap = (last - origin) / MAX_BARS
    for kind, colour in zip(_WORK, theme.methods, strict=False):
        for row, lane in enumerate(lanes.values()):
            spans = _joined([work for work in lane if work[0] == kind], gap)
            bars = [(start - origin, max(end - start, gap / 4)) for start, end in spans]
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, linewidth=0)
        axes.plot([], [], color=colour, linewidth=6, label=_WORK[kind])
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return figure
