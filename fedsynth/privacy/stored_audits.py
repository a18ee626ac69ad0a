"""Results of audits that come with the package: what attacks on the program's code have proven.

Claim: none about any release. An audit attacks a mechanism or a method of this program at small
size, with made data. Its lower bounds stand beside the numbers of a release so that a reader sees
how much of a claim attacks have reached, and that none has gone beyond it.
Consequence: reports and certificates repeat these rows with the sentence `SCOPE`, never without it.

`benchmarks/audit.py` writes the file; `privacy.auditing` has the attacks.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

STORED = Path(__file__).with_name("stored_audits.json")
SCOPE = (
    "These attacks were made on the program's code, at small size and with made data, and not on "
    "this release or its records. A lower bound below the claim proves nothing more."
)
METHOD, MECHANISM = "method", "mechanism"


@dataclass(frozen=True)
class StoredAudit:
    """One attack: what was claimed, what it proved, and what the accountant counts."""

    kind: str  # method or mechanism
    name: str
    attack: str
    runs: int  # in each world
    claimed_epsilon: float
    audited_epsilon: float  # at least, with `confidence`
    theoretical_epsilon: float
    delta: float
    unit: str
    relation: str
    view: str
    confidence: float
    canary_share: float | None  # of the theoretical mu, that the canary moves the values by
    contradicted: bool
    commit: str  # of the code that was attacked

    @staticmethod
    def of(kind: str, finding: Mapping[str, Any], commit: str) -> StoredAudit:
        """The part of a finding, as `fedsynth audit` writes it, that is stored."""
        same = {f.name for f in fields(StoredAudit)} & set(finding)
        mu, reached = finding["theoretical_mu"], finding["canary_mu"]
        return StoredAudit(
            kind=kind,
            commit=commit,
            canary_share=None if not mu or reached is None else reached / mu,
            contradicted=finding["found"],
            **{name: finding[name] for name in same},
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class StoredAudits:
    """All stored audits, and where they come from."""

    command: str
    digest: str  # SHA-256 of the file
    audits: tuple[StoredAudit, ...]

    def of_method(self, name: str) -> tuple[StoredAudit, ...]:
        """The audits of a whole method."""
        return tuple(a for a in self.audits if (a.kind, a.name) == (METHOD, name))

    def facts(self, method: str) -> dict[str, Any]:
        """The audits of a method for a certificate, with their scope and source."""
        return {
            "scope": SCOPE,
            "command": self.command,
            "sha256": self.digest,
            "rows": [audit.as_dict() for audit in self.of_method(method)],
        }


@functools.cache
def stored_audits() -> StoredAudits:
    """The audits that come with this package."""
    data = STORED.read_bytes()
    content = json.loads(data)
    rows = tuple(StoredAudit(**row) for row in content["audits"])
    digest = hashlib.sha256(data).hexdigest()
    return StoredAudits(content["command"], digest, rows)


def problems_of(facts: Mapping[str, Any], method: str) -> list[str]:
    """Contradictions in the facts that a certificate states on audits of a method.

    Rows of another version of the program cannot be compared, and are as the signer states them."""
    own = stored_audits().facts(method)
    if set(facts) != set(own) or facts["scope"] != SCOPE:
        return ["the sentence on audits is not that of audits of code."]
    rows = [StoredAudit(**row) for row in facts["rows"]]
    if any((row.kind, row.name) != (METHOD, method) for row in rows):
        return ["the audits are those of another method."]
    if facts["sha256"] == own["sha256"] and facts != own:
        return ["the audits are not those of the package that it names."]
    return []
