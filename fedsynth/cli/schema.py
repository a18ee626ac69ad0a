"""The command `fedsynth fetch schema FILE`: the template of the schema of one's own table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedsynth.core.errors import UserError, exit_code
from fedsynth.data.formats import huggingface, table_file
from fedsynth.data.formats.own_facts import companions
from fedsynth.data.formats.schema_file import template
from fedsynth.storage.files import write_file


def main(words: Sequence[str]) -> int:
    """Write the template beside the table; exit code 2 after an error of the user."""
    return exit_code(lambda: _write(words))


def _write(words: Sequence[str]) -> None:
    if len(words) != 1 or words[0].startswith("-"):
        raise UserError("name one table: fedsynth fetch schema FILE, a CSV or Parquet file.")
    path = Path(words[0].removeprefix("file:")).expanduser()
    place = companions(path)[0]
    if place.exists():
        raise UserError(f"{place} exists and is not overwritten. Remove it to start again.")
    if path.is_dir() and huggingface.is_saved(path):
        columns, looked = huggingface.looked_at(path)
    elif path.suffix.lower() in table_file.SUFFIXES:
        columns, looked = table_file.looked_at(path)
    else:
        allowed = ", ".join(table_file.SUFFIXES)
        raise UserError(
            f"{path} is not a table. Allowed: {allowed}, or a folder written by save_to_disk."
        )
    write_file(place, template(path.name, columns, looked).encode())
    print(f"{place}: a template with {len(columns)} columns. {looked}")
    print("State the ranges and categories in it yourself; nothing of them was read.")
