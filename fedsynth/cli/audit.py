"""The command `fedsynth audit`: attack a mechanism or a method and bound its epsilon from below.

This command alone can switch on a deliberate error (`break=`), in its own process; no key of a run
can.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import fedsynth
from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.plan import readable_view
from fedsynth.core.settings import build, setting
from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.core.types import Budget
from fedsynth.engine.process_setup import pin_threads
from fedsynth.experiment.audited_method import AuditedMethod
from fedsynth.experiment.client_selection import Joins
from fedsynth.experiment.config import parse_overrides
from fedsynth.experiment.method_audit import Options, audit_in_one_run, audit_in_two_worlds
from fedsynth.methods.registry import is_method
from fedsynth.privacy.auditing.breaks import Break
from fedsynth.privacy.auditing.cases import MECHANISMS
from fedsynth.privacy.auditing.findings import Finding
from fedsynth.privacy.auditing.mechanisms import audit_mechanism, audit_mechanism_in_one_run
from fedsynth.storage.files import write_file

TWO_WORLDS, ONE_RUN = "two_worlds", "one_run"
RUNS = {  # where none are named: (mechanism, method)
    TWO_WORLDS: (10_000, 100),
    ONE_RUN: (1000, 60),
}
DISAGREES = 1  # exit code: a claim was contradicted, or a deliberate error was not found
HEADINGS = (
    "audited",
    "attack",
    "runs",
    "epsilon claimed",
    "audited at least",
    "theoretical",
    "any mechanism",
    "mu audited / theoretical",
    "canary's mu",
    "confidence",
    "claim",
    "power",
)


@dataclass(frozen=True)
class AuditConfig:
    """The keys of an audit; `break` comes beside them."""

    method: str | None = setting(None, "a whole method, at small size")
    mechanism: str | None = setting(None, f"a mechanism: {', '.join(MECHANISMS)}")
    epsilon: float = setting(1.0, "epsilon that is claimed", above=0)
    delta: float = setting(1e-5, "its delta", above=0, below=1)
    form: str = setting(
        TWO_WORLDS,
        "two_worlds: many runs without and with a canary; one_run: one run with many canaries",
        choices=(TWO_WORLDS, ONE_RUN),
    )
    runs: int | None = setting(
        None, "runs in each world, or canaries of the one run; default by size", at_least=20
    )
    unit: Unit = setting(Unit.RECORD, "unit of a method's claim: a record, or a user (party)")
    relation: Relation = setting(Relation.ADD_REMOVE, "neighbours that the claim is for")
    joins: Joins = setting(
        Joins.PUBLIC,
        "hidden: whether a party of a method takes part, or answers with noise alone",
    )
    parties: int | None = setting(
        None, "parties of a method; default: 1, or 2 where it adds over parties", at_least=1
    )
    data: str | None = setting(None, "made data set of a method; default: shapes or made_table")
    noise_seed: int | None = setting(None, "makes the audit reproducible", at_least=0)
    confidence: float = setting(
        0.95, "probability that no bound of this audit is too large", above=0.5, below=1
    )
    out: str | None = setting(None, "JSON file; default runs/audits/NAME-epsE[-BREAK].json")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns 0, 1 (`DISAGREES`), or 2 for an error of the user."""
    arguments = list(sys.argv[1:] if words is None else words)
    try:
        return _audit(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _audit(arguments: Sequence[str]) -> int:
    pin_threads(1)  # tiny tensors: a second thread costs more than it does
    values = parse_overrides(arguments)
    choice = _chosen_break(values.pop("break", None))
    sections = {name: values.pop(name) for name in list(values) if is_method(name)}
    config = build(AuditConfig, values)
    _check(config)
    if others := [name for name in sections if name != config.method]:
        raise UserError(f"{others[0]}: settings of a method that is not audited.")
    findings = _findings(config, choice, sections.get(config.method or "", {}))
    broken = any(finding.found for finding in findings)
    print(_table(findings))
    print(_verdict(findings, choice, broken))
    path = Path(config.out or _default_path(config, choice))
    _write(path, arguments, config, choice, findings)
    print(f"Written to {path}.")
    return 0 if broken == (choice is not None) else DISAGREES


def _chosen_break(value: object) -> Break | None:
    if value is None:
        return None
    if value not in tuple(Break):
        raise unknown("break", value, [choice.value for choice in Break])
    return Break(str(value))


def _findings(
    config: AuditConfig, choice: Break | None, settings: Mapping[str, Any]
) -> list[Finding]:
    of_mechanism, of_method = RUNS[config.form]
    terms: dict[str, Any] = {
        "choice": choice,
        "noise_seed": config.noise_seed,
        "confidence": config.confidence,
    }
    if config.mechanism is not None:
        claim, runs = (config.mechanism, config.epsilon, config.delta), config.runs or of_mechanism
        if config.form == TWO_WORLDS:
            return audit_mechanism(*claim, runs=runs, relation=config.relation, **terms)
        return audit_mechanism_in_one_run(*claim, runs=runs, **terms)
    budget = Budget(config.epsilon, config.delta, config.unit, config.relation)
    audited = AuditedMethod.of(
        str(config.method), budget, settings, config.data, parties=config.parties
    )
    options = Options(config.runs or of_method, hidden=config.joins == Joins.HIDDEN, **terms)
    if config.form == TWO_WORLDS:
        return audit_in_two_worlds(audited, options)
    return audit_in_one_run(audited, options)


def _check(config: AuditConfig) -> None:
    """Refuse words that contradict each other."""
    if (config.method is None) == (config.mechanism is None):
        raise UserError(
            "name what to audit: method=NAME or mechanism=NAME, one of them. Mechanisms: "
            f"{', '.join(MECHANISMS)}; `fedsynth list methods` lists the methods."
        )
    if config.mechanism is not None:
        for name, usual in (("unit", Unit.RECORD), ("joins", Joins.PUBLIC), ("parties", None)):
            if getattr(config, name) != usual:
                raise UserError(
                    f"{name}={getattr(config, name)} is for method=NAME: a mechanism is audited at "
                    "one party, record by record."
                )
    if config.form == ONE_RUN and (config.unit, config.relation, config.joins) != (
        Unit.RECORD,
        Relation.ADD_REMOVE,
        Joins.PUBLIC,
    ):
        raise UserError(
            "form=one_run puts many records in or out: it is for unit=record, relation=add_remove "
            "and joins=public. form=two_worlds audits the others."
        )
    if config.joins == Joins.HIDDEN and config.relation == Relation.REPLACE_ONE:
        raise UserError(
            "joins=hidden: a party that takes part or not is an addition: relation=add_remove."
        )


def _table(findings: Sequence[Finding]) -> str:
    return markdown_table(HEADINGS, [_row(finding) for finding in findings])


def _row(f: Finding) -> list[str]:
    mu = "–"
    if f.audited_mu is not None and f.theoretical_mu is not None:
        mu = f"{f.audited_mu:.3f} / {f.theoretical_mu:.3f} ({f.reached or 0:.0%})"
    return [
        f.name,
        f.attack,
        f"{f.runs} canaries" if f.form == ONE_RUN else f"{f.runs} per world",
        epsilon_text(f.claimed_epsilon),
        epsilon_text(f.audited_epsilon),
        epsilon_text(f.theoretical_epsilon),
        epsilon_text(f.audited_epsilon_any),
        mu,
        "–" if f.canary_mu is None else f"{f.canary_mu:.3f}",
        f"{f.confidence:.2%}",
        "contradicted" if f.found else "not contradicted",
        "–" if f.power is None else f"{f.power:.2f}",
    ]


def _verdict(findings: Sequence[Finding], choice: Break | None, broken: bool) -> str:
    first = findings[0]
    unit, relation = Unit(first.unit).value, Relation(first.relation).value
    views = dict.fromkeys(readable_view(finding.view) for finding in findings)
    meaning = (
        f"All epsilons: unit {unit}, relation {relation}, delta={first.delta:g}, "
        f"seen by: {' / '.join(views)}."
    )
    if choice is not None:
        found = "was found" if broken else "was NOT found: this attack is too weak for it"
        return f"{meaning}\nThe deliberate error {choice.value} {found}."
    if broken:
        return f"{meaning}\nCONTRADICTED: what was attacked spends more than it claims."
    return (
        f"{meaning}\nNot contradicted. A lower bound below the claim proves nothing more: there "
        "may be stronger attacks."
    )


def _default_path(config: AuditConfig, choice: Break | None) -> str:
    name = f"{config.method or config.mechanism}-eps{config.epsilon:g}"
    special = {ONE_RUN: config.form, Unit.USER: config.unit, Joins.HIDDEN: config.joins}
    special[Relation.REPLACE_ONE] = config.relation
    name += "".join(f"-{word}" for word, value in special.items() if value == word)
    return f"runs/audits/{name}{f'-{choice.value}' if choice else ''}.json"


def _write(
    path: Path,
    arguments: Sequence[str],
    config: AuditConfig,
    choice: Break | None,
    findings: Sequence[Finding],
) -> None:
    content = {
        "command": ["fedsynth", "audit", *arguments],
        "version": fedsynth.__version__,
        "settings": asdict(config),
        "break": choice.value if choice else None,
        "findings": [finding.as_dict() for finding in findings],
    }
    write_file(path, (json.dumps(content, indent=1) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
