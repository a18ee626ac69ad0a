"""A party's ledger, shown, checked, exported or closed: `fedsynth ledger COMMAND PATH`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.enums import Accounting, Relation
from fedsynth.core.errors import UserError, exit_code
from fedsynth.core.plan import readable_view
from fedsynth.privacy.accounting.accountant import epsilon
from fedsynth.privacy.accounting.events import describe
from fedsynth.privacy.accounting.gdp import check_delta
from fedsynth.privacy.certificate.canonical import canonical
from fedsynth.privacy.ledger import Entry, read_chains, total
from fedsynth.privacy.ledger_entry import CHARGE, damaged, printable, verified_chain
from fedsynth.privacy.ledger_file import head_gap
from fedsynth.privacy.noise import KEY_FILE, end_repetitions
from fedsynth.storage.files import disk_errors, write_file

ROWS = 40
FORMAT = "fedsynth ledger export"
MARKS = (
    "Each `data` is a keyed fingerprint of the records, salted with the place of the entry: "
    "without the party's noise key it can be neither linked to another entry nor compared with "
    "data. It is kept because the hash of the entry covers it."
)
UNSEEN = (
    "Not seen here: whether the key is the party's own (compare it with the one that the party "
    "gave you); whether ledger and head were put back together to an older copy (compare with a "
    "later certificate or export); whether the party released anything without this ledger."
)


@dataclass(frozen=True)
class Spending:
    """The spending up to an entry, in the terms of that entry."""

    epsilon: float
    delta: float
    unit: str
    relation: str

    @property
    def text(self) -> str:
        """The number with what it means."""
        return f"{self.epsilon:.4g} at delta={self.delta:g}, {self.unit}, {self.relation}"


def spending(entries: list[Entry], delta: float) -> Spending:
    """The spending of all of these entries, by PLD, in the terms of the last one.

    Args:
        entries: Of one chain.
        delta: For ledgers of earlier versions, which do not have it.
    """
    last = entries[-1]
    relation = Relation(last.relation) if last.relation else Relation.ADD_REMOVE
    delta = last.delta if last.protocol > 1 else delta
    value = epsilon(total(entries), delta, Accounting.PLD, relation)
    return Spending(value, delta, last.unit or "unit not in the ledger", str(relation))


def show(path: Path, *, delta: float, rows: int) -> str:
    """The entries of each chain as a table, the last `rows` of them, with the spending so far."""
    blocks = []
    for chain in _chains(path):
        first = max(0, len(chain) - rows)
        lines: list[tuple[str, ...]] = [
            ("seq", "job", "stage", "label", "kind", "event", "view", "epsilon so far")
        ]
        so_far = ""
        for number in range(first, len(chain)):
            entry = chain[number]
            if entry.kind == CHARGE or not so_far:
                value = spending(chain[: number + 1], delta).epsilon
                so_far = f"{value:.4g}"
            words = describe(entry.privacy_event) if entry.kind == CHARGE else entry.payload[:20]
            view = readable_view(entry.view)
            cells = (entry.job, entry.stage, entry.label, entry.kind, words, view)
            lines.append((str(entry.seq), *(printable(cell) for cell in cells), so_far))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        if first:
            table.insert(1, f"... {first} earlier entries (--rows shows more)")
        blocks.append("\n".join([*table, f"spent: epsilon {spending(chain, delta).text}"]))
    return "\n\n".join(blocks)


def check(path: Path, *, key: str | None, head: Path | None) -> list[str]:
    """Check chains, every signature and the head; return what was found.

    Args:
        path: A party's ledger, or a run's with those of all parties.
        key: The public key of the party, where it is known.
        head: The file of the head; default: the one beside a ledger of one party.

    Raises:
        LedgerDamaged: A line, a hash, a signature or the head does not fit.
    """
    chains = _chains(path)
    found = []
    for chain in chains:
        first = chain[0]
        name = f"{printable(first.job)}, party {first.party}"
        if first.protocol == 1:
            if key is not None:
                raise UserError(f"{name}: this ledger of an earlier version is not signed.")
            found.append(f"{name}: {len(chain)} entries, every hash holds; not signed.")
            continue
        for entry in chain:
            if not entry.is_signed():
                raise damaged(path.name, entry.seq + 1, "its signature is false")
        if key is not None and first.signer != key:
            raise UserError(f"{name}: signed by {first.signer}, not by {key}.")
        found.append(
            f"{name}: {len(chain)} entries, every hash and signature holds; key {first.signer}."
        )
    beside = head or path.with_suffix(".head")
    if len(chains) == 1 and chains[0][0].protocol > 1 and (head or beside.exists()):
        if gap := head_gap(beside, chains[0]):
            raise UserError(f"{path}: {gap}. Entries are missing or the head is not this ledger's.")
        found.append("The signed head agrees: no entry is missing from the end.")
    else:
        found.append("No head was checked: entries that are missing from the end are not seen.")
    return [*found, UNSEEN]


def export(path: Path) -> dict[str, Any]:
    """A copy for others: all entries, which can be checked without the party, and no secrets."""
    chains = [[entry.stored() for entry in chain] for chain in _chains(path)]
    return {"format": FORMAT, "data": MARKS, "not_seen": UNSEEN, "chains": chains}


def close(path: Path) -> str:
    """Destroy the noise key beside a party's ledger, so that no earlier request can be repeated.

    Raises:
        UserError: There is no such ledger, or no key beside it.
    """
    jobs = {entry.job for chain in _chains(path) for entry in chain}
    folder = path.parent
    if not (folder / KEY_FILE).is_file():
        raise UserError(f"{folder} has no {KEY_FILE}: its jobs are closed already.")
    with disk_errors(folder):
        end_repetitions(folder)
    return (
        f"{len(jobs)} jobs are closed: the noise key of {folder} and its unfinished work are gone. "
        "Their requests cannot be repeated: they are refused, or charged anew where a plan has "
        "room. What was spent stays spent."
    )


def _chains(path: Path) -> list[list[Entry]]:
    """The verified chains of a ledger, or of an export of one."""
    if not path.is_file():
        raise UserError(f"{path} is not a file.")
    exported = _exported(path)
    chains = read_chains(path) if exported is None else exported
    if not chains:
        raise UserError(f"{path} holds no entries: it is empty or was cut off.")
    return chains


def _exported(path: Path) -> list[list[Entry]] | None:
    """The verified chains of an export; None for any other file."""
    if path.suffix == ".jsonl":
        return None
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            return None
        texts = [b"".join(canonical(fields) + b"\n" for fields in c) for c in document["chains"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return [verified_chain(text, f"{path.name}, chain {n}") for n, text in enumerate(texts, 1)]


def _run(options: argparse.Namespace) -> None:
    check_delta(options.delta)
    if options.rows < 1:
        raise UserError(f"--rows must be 1 or more, not {options.rows}.")
    match options.command:
        case "show":
            print(show(options.path, delta=options.delta, rows=options.rows))
        case "verify":
            print("\n".join(check(options.path, key=options.key, head=options.head)))
        case "close":
            print(close(options.path))
        case _:
            text = json.dumps(export(options.path), indent=1, sort_keys=True, allow_nan=False)
            if options.out is None:
                print(text)
            else:
                write_file(options.out, (text + "\n").encode())


def main(words: Sequence[str] | None = None) -> int:
    """Run one of the commands; exit code 2 after an error, which is printed."""
    parser = ArgumentParser(prog="fedsynth ledger")
    parser.add_argument("command", choices=("show", "verify", "export", "close"))
    parser.add_argument("path", type=Path, help="a party's ledger.jsonl, a run's, or an export")
    parser.add_argument(
        "--delta", type=float, default=1e-5, help="for ledgers of earlier versions; default: 1e-5"
    )
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of show; default: the last {ROWS}")
    parser.add_argument("--key", help="verify: the public key of the party")
    parser.add_argument("--head", type=Path, help="verify: the head; default: beside the ledger")
    parser.add_argument("--out", type=Path, help="export: the file to write; default: print")
    options = parser.parse_args(words)
    return exit_code(lambda: _run(options))
