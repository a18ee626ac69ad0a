"""Audits of all mechanisms and all methods at small size, as one table.

    python benchmarks/audit.py FOLDER [NAME ...]
    python benchmarks/audit.py FOLDER --table

An audit whose JSON file is in FOLDER is not run again, so that a run that was stopped goes on where
it was. The table is written to FOLDER/README.md; the rows that reports and certificates show go to
`fedsynth/privacy/stored_audits.json`. Each line of FOLDER/commits has the beginning of names of
files and the commit of the code that was attacked; the longest that fits counts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.cli.audit import main as audit
from fedsynth.core.plan import readable_view
from fedsynth.core.text import epsilon_text, markdown_table
from fedsynth.methods.registry import all_methods
from fedsynth.privacy.auditing.cases import MECHANISMS
from fedsynth.privacy.stored_audits import STORED, StoredAudit

EPSILON = 10
COMMAND = "python benchmarks/audit.py results/audit"
MECHANISM, REPLACED, MANY, SOME, FEW = 12_000, 2000, 1000, 200, 100  # runs in each world
RUNS = {
    **dict.fromkeys(("dp_hp", "dp_merf", "dp_merf_joint", "dp_ntk", "dpmix"), MANY),
    **dict.fromkeys(("gs_wgan", "sketch_teach", "sketch_teach_joint"), FEW),
    "ldpdc": 6 * MANY,  # the first sixth alone gave a false alarm: 1.003 of mu
}
# Claims beside that of one added record towards the first observer: settings, runs.
OTHERS: dict[str, tuple[tuple[str, tuple[str, ...], int], ...]] = {
    "dp_merf_joint": (
        ("distributed", ("dp_merf_joint.noise_at=distributed", "parties=3"), MANY),
        ("aggregate", ("dp_merf_joint.noise_at=aggregate",), MANY),
        ("hidden", ("dp_merf_joint.noise_at=distributed", "parties=3", "joins=hidden"), MANY),
        ("replaced", ("relation=replace_one",), MANY),
    ),
    "dp_sgd": (("replaced", ("relation=replace_one",), SOME),),
    "dpmix": (("replaced", ("relation=replace_one",), SOME),),
    "dp_hp": (("few_orders", ("dp_hp.order=3", "dp_hp.product_order=2"), SOME),),
    "dp_kernel": (("published_clip", ("dp_kernel.clip=1",), SOME),),
    "datalens": (("user", ("unit=user", "joins=hidden"), FEW),),
    "gs_wgan": (("user", ("unit=user", "joins=hidden"), FEW),),
}
REASONS = Path(__file__).with_name("audit_reasons.md")

HEAD = """\
# Audits

Lower bounds on epsilon by attack (`docs/guides/audit.md`), all at epsilon {epsilon}, delta 1e-5,
noise_seed 1, unit record and relation add_remove unless the row says otherwise. Each audit was
run by the `fedsynth audit` command in its JSON file; the tables by
`{command} --table`, on 2 CPU cores ({seconds} s of processor time).
Bounds hold with the confidence of their row, and the rows of one audit together with 95%.

Commits of the attacked code, with the beginnings of names of files: {commits}.

"Audited" is the bound for events of the charged form, "any" the one by the (epsilon, delta)
definition alone; "reached" is audited over theoretical mu, which exists where no records are
sampled. "Canary" is how far the canary moves the values in deviations of the claimed noise, over
the theoretical mu: what an attack with unlimited runs would reach. "Power" is the share of audits
on resampled scores that contradict the claim. Few runs make a bound low: of the runs in each world
a half (a tenth, above 200) chooses the threshold. Methods were given as many runs as their cost
allowed, {few} to {most:,}.

"""


@dataclass(frozen=True)
class Planned:
    """One call of `fedsynth audit`."""

    kind: str
    name: str
    variant: str
    words: tuple[str, ...]
    runs: int

    @property
    def file(self) -> str:
        """The name of its result."""
        return f"{'-'.join(filter(None, (self.kind, self.name, self.variant)))}.json"

    def commit(self, folder: Path) -> str:
        """The commit of the code that was attacked."""
        lines = [line.split() for line in (folder / "commits").read_text().splitlines()]
        return max((len(name), commit) for name, commit in lines if self.file.startswith(name))[1]


def planned() -> Iterator[Planned]:
    """All audits, the cheap ones first."""
    private = sorted(name for name, some in all_methods().items() if some.private)
    for runs in (6 * MANY, MANY, SOME, FEW):
        for name in private:
            if RUNS.get(name, SOME) == runs:
                yield Planned("method", name, "", (), runs)
    for name, variants in OTHERS.items():
        for variant, words, runs in variants:
            yield Planned("method", name, variant, words, runs)
    for name in MECHANISMS:
        yield Planned("mechanism", name, "", (), MECHANISM)
        yield Planned("mechanism", name, "replaced", ("relation=replace_one",), REPLACED)


def run(folder: Path, names: list[str]) -> None:
    """Run the audits that are missing."""
    for one in planned():
        path = folder / one.file
        if path.exists() or (names and one.name not in names):
            continue
        start = time.process_time()
        claim = (f"{one.kind}={one.name}", f"epsilon={EPSILON}", f"runs={one.runs}")
        audit([*claim, *one.words, "noise_seed=1", f"out={path}"])
        with (folder / "seconds").open("a") as file:
            file.write(f"{one.file} {time.process_time() - start:.1f}\n")


def results(folder: Path, kind: str) -> list[tuple[Planned, dict[str, Any]]]:
    """The findings of mechanisms, or of methods, with the call that made them."""
    found = []
    for one in sorted(planned(), key=lambda one: (one.name, one.variant)):
        if one.kind == kind and (folder / one.file).exists():
            content = json.loads((folder / one.file).read_text())
            found += [(one, finding) for finding in content["findings"]]
    return found


def table(folder: Path, kind: str) -> str:
    """The findings of mechanisms, or of methods."""
    headings = (
        *("audited", "attack", "unit, relation", "seen by", "runs", "claimed", "audited"),
        *("theoretical", "any", "reached", "canary", "confidence", "power", "contradicted"),
    )
    return markdown_table(headings, [_row(*result) for result in results(folder, kind)])


def canaries(folder: Path) -> str:
    """The records by which the worlds of each method differ."""
    rows = {(one.file, f["canary"]): (one, f) for one, f in results(folder, "method")}
    lines = [
        (one.name, one.variant or "–", " ".join(one.words) or "–", f["canary"])
        for one, f in rows.values()
    ]
    return markdown_table(("method", "audit", "words", "worlds differ by"), lines)


def missing(folder: Path) -> str:
    """A sentence on the audits that have not been run; empty if there is none."""
    names = [one.file.removesuffix(".json") for one in planned()]
    names = [name for name in names if not (folder / f"{name}.json").exists()]
    return f"\nNot run yet: {', '.join(names)}.\n" if names else ""


def _row(one: Planned, finding: dict[str, Any]) -> list[str]:
    audit = StoredAudit.of(one.kind, finding, "")
    reached = "–" if finding["reached"] is None else f"{finding['reached']:.1%}"
    name = finding["name"] if one.kind == "mechanism" else f"{one.name} {one.variant}".strip()
    values = (audit.claimed_epsilon, audit.audited_epsilon, audit.theoretical_epsilon)
    return [
        name,
        audit.attack,
        f"{audit.unit}, {audit.relation}",
        readable_view(audit.view),
        str(audit.runs),
        *(epsilon_text(value) for value in (*values, finding["audited_epsilon_any"])),
        reached,
        "–" if audit.canary_share is None else f"{audit.canary_share:.1%}",
        f"{audit.confidence:.2%}",
        f"{finding['power']:.2f}",
        "yes" if audit.contradicted else "no",
    ]


def store(folder: Path) -> None:
    """Write the rows that come with the package."""
    rows = [
        StoredAudit.of(one.kind, finding, one.commit(folder)).as_dict()
        for kind in ("method", "mechanism")
        for one, finding in results(folder, kind)
    ]
    content = {"command": COMMAND, "audits": rows}
    STORED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    """Run the audits and write the table."""
    folder = Path(words[0])
    if "--table" not in words:
        run(folder, words[1:])
    seconds = sum(float(line.split()[1]) for line in (folder / "seconds").read_text().splitlines())
    attacked: dict[str, list[str]] = {}
    for line in (folder / "commits").read_text().splitlines():
        name, commit = line.split()
        attacked.setdefault(commit, []).append(name.removesuffix(".json"))
    commits = "; ".join(f"{commit} ({', '.join(names)})" for commit, names in attacked.items())
    terms = {"epsilon": EPSILON, "command": COMMAND, "seconds": f"{seconds:,.0f}"}
    text = HEAD.format(commits=commits, few=FEW, most=6 * MANY, **terms)
    text += f"## Methods\n\n{table(folder, 'method')}\n\n{canaries(folder)}\n"
    text += f"{missing(folder)}\n{REASONS.read_text(encoding='utf-8')}\n"
    text += f"## Mechanisms\n\n{table(folder, 'mechanism')}\n"
    (folder / "README.md").write_text(text, encoding="utf-8")
    store(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
