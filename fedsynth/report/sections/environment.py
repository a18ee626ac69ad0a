"""Sections of the methods and of what is needed to repeat the run."""

from __future__ import annotations

from fedsynth.core.text import MISSING
from fedsynth.report.elements import Column, ReportContext, Row, Section, Table

FILES = {
    "config.yaml": "every setting of the run, after presets and overrides",
    "environment.json": "versions, machine and command",
    "metrics.csv": "every number of this page: method, epsilon, seed, stage, metric, value and the "
    "meaning of epsilon: unit, relation, delta, view",
    "timings.csv": "seconds, in the same format; a separate file because they differ between runs",
    "events.jsonl": "rounds, answers of parties and evaluations: when, how long, bytes and memory",
    "ledger.jsonl": (
        "every charge of every party, made before the release: append-only, each line bound to "
        "the previous one by its hash"
    ),
    "releases/": (
        "one folder per method, epsilon and seed; stage-k.npz holds images (float32, 0 is black "
        "and 1 is white) and labels, model-k.npz the arrays of a model; no pickle. "
        "stage-k.png shows ten images per class"
    ),
    "releases/*/*.privacy.json": (
        "the certificate of a release: what it promises, to whom, and the signed statements of the "
        "parties; registry.yaml beside it is a record for the registry of deployments"
    ),
    "seal.json": "hashes of the result files, signed by the server",
    "figures/": "the figures of this page as PNG",
    "comparison.md": "comparison with published numbers, if there are any for data and method",
    "log.txt": "log of the run (UTC)",
    "report.html": "this page",
}


def method_section(context: ReportContext) -> Section | None:
    """The methods of the run; None if none is listed."""
    if not context.data.methods:
        return None
    columns = (Column("Method", "label"), Column("Summary", "text"), Column("Source", "text"))
    rows = [
        Row((method.name, method.summary, method.source or MISSING), reference=not method.private)
        for method in context.data.methods
    ]
    table = Table("Methods of this run; references are not private", columns, rows)
    return Section("methods", "Methods", {"table": table})


def environment_section(context: ReportContext) -> Section:
    """Command, notes, machine and package versions, and the files of the run directory."""
    environment = context.run.read_environment()
    columns = (Column("File", "label"), Column("Content", "text"))
    content = {
        "command": context.data.command or str(environment.get("command", "")),
        "notes": context.data.notes,
        "environment": _environment(environment) if environment else {},
        "files": Table("Files of the run directory", columns, [Row(f) for f in FILES.items()]),
    }
    return Section("reproduce", "Reproduce", content)


def _environment(environment: dict[str, object]) -> dict[str, object]:
    """Machine, commit and package versions by the names under which they are shown."""
    gpus = environment.get("gpus")
    shown: dict[str, object] = {
        "Python": environment.get("python"),
        "Platform": environment.get("platform"),
        "Processor": environment.get("processor"),
        "CPUs": environment.get("cpus"),
        "GPUs": ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "none",
    }
    git = environment.get("git")
    if isinstance(git, dict):
        changed = " with local changes" if git.get("changed") else ""
        shown["Commit"] = f"{git.get('commit')}{changed}"
    packages = environment.get("packages")
    if isinstance(packages, dict):
        shown |= dict(sorted(packages.items()))
    return {name: value for name, value in shown.items() if value is not None}
