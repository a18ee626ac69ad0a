"""Scenario files: where they are looked for and how they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fedsynth.core import plugins
from fedsynth.core.errors import UserError, unknown


def scenario_folders() -> list[Path]:
    """The folders in which scenarios are searched: here, the package, then beside plug-ins."""
    package = Path(__file__).parents[1]
    own = [Path("scenarios"), package.parent / "scenarios", package / "scenarios"]
    return [*own, *plugins.scenario_folders()]


def scenario_files() -> dict[str, Path]:
    """All scenarios by name."""
    found: dict[str, Path] = {}
    for folder in scenario_folders():
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return found


def scenario_file(name: str) -> Path:
    """The file of the scenario of this name or path."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise UserError(f"scenario={name!r}: there is no such file.")
        return path
    files = scenario_files()
    if name not in files:
        raise unknown("scenario", name, files)
    return files[name]


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; an empty file is an empty one.

    Raises:
        UserError: The file is missing, is not valid YAML, or gives a key twice.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _UniqueKeyLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold keys and values.")
    return {str(k): v for k, v in values.items()}


class _UniqueKeyLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which takes the last of equal keys, with an error in place of that."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", node.value[index][0].start_mark
                )
        return super().construct_mapping(node, deep)
