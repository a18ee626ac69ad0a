"""Audits that come with the package: those of `results/audit`, and said to be of code only."""

from __future__ import annotations

import copy
import dataclasses
import json

from tiny_runs import ROOT

from fedsynth.methods.registry import all_methods
from fedsynth.privacy.stored_audits import (
    METHOD,
    SCOPE,
    StoredAudit,
    problems_of,
    stored_audits,
)

RESULTS = ROOT / "results/audit"


def test_the_rows_are_those_of_the_results():
    """No number of the package differs from one that `fedsynth audit` wrote."""
    written = []
    for path in RESULTS.glob("*.json"):
        kind = path.name.split("-")[0]
        content = json.loads(path.read_text(encoding="utf-8"))
        written += [StoredAudit.of(kind, finding, "") for finding in content["findings"]]
    stored = [dataclasses.replace(audit, commit="") for audit in stored_audits().audits]
    assert sorted(map(repr, stored)) == sorted(map(repr, written))
    commits = {line.split()[1] for line in (RESULTS / "commits").read_text().splitlines()}
    assert {audit.commit for audit in stored_audits().audits} == commits


def test_stored_audits_are_of_private_methods_and_none_is_above_its_claim():
    private = {name for name, some in all_methods().items() if some.private}
    audited = {row.name for row in stored_audits().audits if row.kind == METHOD}
    assert audited <= private
    assert len(audited) >= len(private) / 2
    for row in stored_audits().audits:
        assert not row.contradicted
        assert row.audited_epsilon <= row.theoretical_epsilon


def test_facts_say_that_the_code_was_audited_and_not_a_release():
    facts = stored_audits().facts("dp_merf")
    assert facts["scope"] == SCOPE
    assert "not on this release" in SCOPE
    assert {row["name"] for row in facts["rows"]} == {"dp_merf"}
    assert {row["kind"] for row in facts["rows"]} == {METHOD}
    assert not problems_of(facts, "dp_merf")


def test_other_words_other_rows_and_other_numbers_are_found():
    facts = stored_audits().facts("dp_merf")
    assert problems_of(facts, "dp_ntk")
    assert problems_of({**facts, "scope": "This release was audited."}, "dp_merf")
    changed = copy.deepcopy(facts)
    changed["rows"][0]["audited_epsilon"] = 0.0
    assert problems_of(changed, "dp_merf")
    assert not problems_of({**changed, "sha256": "0" * 64}, "dp_merf"), "another version's rows"
