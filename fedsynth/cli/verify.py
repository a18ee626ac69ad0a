"""Check a release, a run or a ledger without trusting it: `python -m fedsynth.cli.verify PATH`.

A release, or a folder of releases, is checked by the certificates in it (`cli.verify_release`); a
run directory as a whole (`cli.verify_run`); a ledger line by line (`cli.verify_ledger`). Nothing is
needed but the named path. The exit code is 0 if everything holds, else 2.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fedsynth.cli import verify_ledger
from fedsynth.cli.trusted_keys import trusted_keys
from fedsynth.core.arguments import ArgumentParser
from fedsynth.core.enums import Relation, Unit
from fedsynth.core.errors import UserError, exit_code
from fedsynth.privacy.accounting.gdp import check_delta
from fedsynth.storage.run_directory import CONFIG


def parser() -> ArgumentParser:
    """The options of the command."""
    made = ArgumentParser(prog="fedsynth verify")
    made.add_argument(
        "path",
        type=Path,
        help="a release, a folder of releases, an exported folder, a run or a ledger",
    )
    made.add_argument(
        "--key", action="append", default=[], help="public key of a party, known from elsewhere"
    )
    made.add_argument("--keys", type=Path, help="file of known keys: HEX, then party N or server")
    made.add_argument("--delta", type=float, default=1e-5, help="of a ledger; default: 1e-5")
    made.add_argument(
        "--opacus", action="store_true", help="count a ledger by dp-accounting and Opacus as well"
    )
    made.add_argument(
        "--unit", choices=tuple(Unit), help="of a ledger; default: from the run's config.yaml"
    )
    made.add_argument(
        "--relation",
        choices=tuple(Relation),
        help="of a ledger; default: from the run's config.yaml, else add_remove",
    )
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Check what is named and print what holds; exit code 2 if anything does not."""
    options = parser().parse_args(words)
    return exit_code(lambda: print("\n".join(_lines(options))))


def _lines(options: argparse.Namespace) -> list[str]:
    path: Path = options.path
    check_delta(options.delta)
    trusted = trusted_keys(options.key, options.keys)
    if not path.exists():
        raise UserError(f"{path} does not exist.")
    if path.is_file() and path.suffix == ".jsonl":
        return verify_ledger.report(
            path, options.delta, options.unit, options.opacus, options.relation
        )
    if path.is_dir() and (path / CONFIG).is_file():
        from fedsynth.cli.verify_run import report

        return report(path, trusted)
    from fedsynth.api.export.folder import CERTIFIED
    from fedsynth.cli.verify_release import (
        export_lines,
        exported,
        refuse,
        release_verdicts,
        show,
    )

    folder = exported(path)
    verdicts = release_verdicts(folder / CERTIFIED if folder else path, trusted)
    refuse(verdicts)
    return show(verdicts) + (export_lines(folder) if folder else [])


if __name__ == "__main__":
    sys.exit(main())
