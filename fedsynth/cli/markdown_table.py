"""The result table of a run as Markdown: `python -m fedsynth.cli.markdown_table RUN [RUN ...]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedsynth.core.errors import exit_code
from fedsynth.core.text import MISSING, epsilon_text, markdown_table
from fedsynth.experiment.evaluation_data import TEST_DATA, EvaluationData, evaluation_data
from fedsynth.report.classifier_tables import by_classifier, by_quality
from fedsynth.report.classifier_tables import markdown as listing_markdown
from fedsynth.report.guarantees import Meaning, meaning_of, other_meanings
from fedsynth.report.summary import SummaryRow, frame, stages_of, summarise, table_note
from fedsynth.storage.run_directory import RunDirectory


def results_table(rows: Sequence[SummaryRow], tested: EvaluationData) -> str:
    """One row per method and budget: accuracy after each stage and cost, with a note on ±."""
    stages = stages_of(rows)
    one = len(stages) == 1
    measured = ["accuracy"] if one else [*(f"stage {s}" for s in stages), "forgetting"]
    head = ["method", "budget ε", *measured, "ε PLD", "ε RDP"]
    lines = []
    for row in rows:
        name = row.method if row.private else f"{row.method} (not private)"
        cells = [str(row.accuracy.get(stage, MISSING)) for stage in stages]
        if not one:
            cells.append(MISSING if row.forgetting is None else str(row.forgetting))
        spent = [epsilon_text(row.epsilon_pld), epsilon_text(row.epsilon_rdp)]
        lines.append([name, epsilon_text(row.epsilon), *cells, *spent])
    note = table_note(rows, tested)
    if tested != TEST_DATA:
        note = f"accuracy on {tested.name}; {note}"
    return f"{markdown_table(head, lines)}\n\n{note}."


def main(words: Sequence[str] | None = None) -> int:
    """Print the table of each run named."""
    runs = sys.argv[1:] if words is None else words
    return exit_code(lambda: _print_tables(runs))


def _print_tables(runs: Sequence[str]) -> None:
    first = meaning_of(RunDirectory.read(runs[0]).read_config()) if runs else Meaning()
    for name in runs:
        run = RunDirectory.read(name)
        metrics = frame(run.metrics())
        print(results_table(summarise(metrics), evaluation_data(run.read_config())))
        for line in other_meanings(run, first):
            print(f"* {line}")
        for listing in (by_classifier(metrics), by_quality(metrics)):
            if listing:
                print(f"\n{listing_markdown(listing)}")


if __name__ == "__main__":
    sys.exit(main())
