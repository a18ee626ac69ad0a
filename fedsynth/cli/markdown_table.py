"""The result table of a run as Markdown: `python -m fedsynth.cli.markdown_table RUN [RUN ...]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fedsynth.core.errors import UserError
from fedsynth.report.classifier_tables import by_classifier, by_quality
from fedsynth.report.classifier_tables import markdown as listing_markdown
from fedsynth.report.summary import (
    MISSING,
    SummaryRow,
    epsilon_words,
    frame,
    stages_of,
    summarise,
    table_note,
)
from fedsynth.storage.run_directory import RunDirectory


def markdown_table(rows: Sequence[SummaryRow]) -> str:
    """A row a method and budget: accuracy after each stage, what it cost, and what ± means."""
    stages = stages_of(rows)
    head = ["method", "budget ε", *(f"stage {s}" for s in stages), "forgetting", "ε PLD", "ε RDP"]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in rows:
        name = row.method if row.private else f"{row.method} (not private)"
        cells = [str(row.accuracy.get(stage, MISSING)) for stage in stages]
        lost = MISSING if row.forgetting is None else str(row.forgetting)
        spent = [epsilon_words(row.epsilon_pld), epsilon_words(row.epsilon_rdp)]
        lines.append(_line([name, epsilon_words(row.epsilon), *cells, lost, *spent]))
    return "\n".join([*lines, "", f"{table_note(rows)}."])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(words: Sequence[str] | None = None) -> int:
    """Print the table of each run named."""
    try:
        for word in sys.argv[1:] if words is None else words:
            metrics = frame(RunDirectory.read(word).metrics())
            print(markdown_table(summarise(metrics)))
            for listing in (by_classifier(metrics), by_quality(metrics)):
                if listing:
                    print(f"\n{listing_markdown(listing)}")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
