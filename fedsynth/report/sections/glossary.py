"""Section of the words that this page uses, explained for readers from outside the field."""

from __future__ import annotations

from fedsynth.evaluation.protocols import PROTOCOLS
from fedsynth.report.elements import ReportContext, Section

WORDS = {
    "ε (epsilon)": "The bound of the privacy guarantee. Any conclusion from a release is at most "
    "e^ε times as likely with one's data as without; 0 would be perfect privacy, and each further "
    "unit multiplies the bound by 2.7.",
    "δ (delta)": "The probability by which the bound of ε may be exceeded; chosen far below one "
    "over the number of records.",
    "Budget, spent": "The budget is the ε that was asked for. Spent is what the ledger's events "
    "add up to, counted after the fact.",
    "Unit": "What one guarantee covers: one record, or all records of one user.",
    "Neighbours (relation)": "The two cases that must be hard to tell apart: with and without the "
    "unit (add or remove one), or with this unit and with another (replace one).",
    "View": "The observer for whom an ε holds. One who sees less (sums over parties, or the end "
    "result only) learns less, so the same release has several ε.",
    "PLD": "Accounting by privacy loss distributions: the tightest count of ε on this page that "
    "holds.",
    "RDP": "Accounting by Rényi divergences: valid as well, but looser, hence a larger ε for the "
    "same release. Many publications report it.",
    "ε paper": "The count that the method's publication used, to compare with its numbers. It may "
    "hold for another relation or view.",
    "Noise multiplier": "The standard deviation of the noise over the most that one unit can move "
    "the result.",
    "Party, server": "A party holds records and releases something made from them. The server "
    "receives the releases and is not trusted with records.",
    "Stage, class-incremental": "Parties that release one after another make one stage each. "
    "Class-incremental: the stages bring new classes, and one classifier must tell all classes "
    "seen so far apart, without being told the stage.",
    "Forgetting": "The loss of accuracy on the classes of earlier stages, from its best value.",
    "Seed, interval": "A run with another seed draws all noise and networks anew. A 95% interval "
    "by Student's t would hold the mean of many seeds in 95 of 100 runs, if seeds vary normally.",
    "Reference": "A method without any privacy (ε = ∞), to show what privacy costs.",
}


def glossary_section(context: ReportContext) -> Section:
    """The words, and the protocols by which this run was evaluated."""
    used = sorted({name[0] for row in context.rows for name in row.classifiers})
    protocols = {
        f"Protocol {name}": f"A fixed way of training a classifier on a release before it is "
        f"tested: {PROTOCOLS[name].summary}. Accuracies under different protocols do not compare."
        for name in used
        if name in PROTOCOLS
    }
    return Section("glossary", "Words of this page", {"words": WORDS | protocols}, "Glossary")
