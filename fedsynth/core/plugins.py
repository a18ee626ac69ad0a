"""Plug-ins: code from outside the package, as files (`plugin=PATH`) or installed entry points.

A plug-in holds methods, data sets, or both; scenarios in a folder `scenarios` beside it are found
as well. Files are imported by their path, so they may lie anywhere. Installed packages name a
module or package in the entry-point group `fedsynth.plugins`; it is imported only when one of its
names is needed. A plug-in that cannot be loaded is recorded as broken and harms nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedsynth.core.errors import UserError

GROUP = "fedsynth.plugins"


@dataclass(frozen=True)
class Plugin:
    """One plug-in.

    Attributes:
        label: Its name in messages.
        modules: The source file of each of its modules, by module name.
        digest: SHA-256 of a file named by `plugin=`, as it was imported; empty for entry points.
    """

    label: str
    modules: Mapping[str, Path]
    digest: str = ""


_files: dict[Path, Plugin] = {}
_broken: dict[str, str] = {}


def load_file(path: str) -> Plugin:
    """Import a plug-in file, once per process.

    Raises:
        UserError: There is no such Python file, or importing it fails.
    """
    file = absolute(path)
    if file not in _files:
        label = f"plugin={path}"
        _broken.pop(label, None)
        if file.suffix != ".py" or not file.is_file():
            raise _failure(label, "there is no such Python file (NAME.py)")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        name = f"fedsynth_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}_{file.stem}"
        import_source(name, label, file)
        _files[file] = Plugin(label, {name: file}, digest)
    return _files[file]


def absolute(path: str, folder: Path = Path()) -> Path:
    """The absolute path of a plug-in file that is given relative to `folder`."""
    return (folder / Path(path).expanduser()).resolve()


def plugins() -> tuple[Plugin, ...]:
    """The plug-in files of this process, then the installed entry points."""
    return (*_files.values(), *_entry_points())


def import_source(module: str, label: str, file: Path | None = None) -> None:
    """Import a module by its name, or from `file` under this name.

    Raises:
        UserError: The import fails; names `label`, the error and its line.
    """
    try:
        if file is None or module in sys.modules:
            importlib.import_module(module)
            return
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded  # dataclasses look up their module there
        spec.loader.exec_module(loaded)
    except (Exception, SystemExit) as error:
        sys.modules.pop(module, None)
        raise _failure(label, describe_error(error)) from error


def _failure(label: str, reason: str) -> UserError:
    mark_broken(label, reason)
    return UserError(f"{label} cannot be loaded: {reason}.")


def import_entry_points() -> None:
    """Import all installed plug-ins, which registers their data sets; broken ones are recorded."""
    for plugin in _entry_points():
        for module in plugin.modules:
            if plugin.label not in _broken:
                try:
                    import_source(module, plugin.label)
                except UserError:
                    continue


def mark_broken(label: str, reason: str) -> None:
    """Record that a plug-in cannot be used."""
    _broken.setdefault(label, reason)


def broken() -> Mapping[str, str]:
    """The reason for each plug-in that was found to be broken, by its label."""
    return dict(_broken)


def scenario_folders() -> list[Path]:
    """The folders `scenarios` beside plug-ins."""
    sources = [next(iter(plugin.modules.values())) for plugin in plugins() if plugin.modules]
    return [source.parent / "scenarios" for source in sources]


def describe_error(error: BaseException) -> str:
    """One line: the type of an error, its text and the line of the innermost frame or syntax."""
    text = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        return f"SyntaxError on line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if "importlib" not in frame.filename]
    where = f" on line {outside[-1].lineno} of {Path(outside[-1].filename).name}" if outside else ""
    return f"{type(error).__name__}{where}: {text}"


@functools.cache
def _entry_points() -> tuple[Plugin, ...]:
    """The installed plug-ins, not imported."""
    points = importlib.metadata.entry_points(group=GROUP)
    return tuple(_located(point) for point in sorted(points, key=lambda point: point.name))


def _located(point: importlib.metadata.EntryPoint) -> Plugin:
    """The source files of an entry point: its module, and those below where it is a package."""
    label = f"plug-in {point.name} ({point.value})"
    try:
        spec = importlib.util.find_spec(point.module)
    except (Exception, SystemExit) as error:  # of a parent package
        mark_broken(label, describe_error(error))
        return Plugin(label, {})
    if spec is None or spec.origin is None:
        mark_broken(label, f"there is no module {point.module}")
        return Plugin(label, {})
    modules = {point.module: Path(spec.origin)}
    for folder in map(Path, spec.submodule_search_locations or ()):
        modules |= modules_below(folder, point.module)
    return Plugin(label, modules)


def modules_below(folder: Path, package: str) -> dict[str, Path]:
    """The source file of each module in a package's folder and its subfolders, by module name."""
    files = sorted(f for f in folder.rglob("*.py") if f.name != "__init__.py")
    return {".".join((package, *f.relative_to(folder).with_suffix("").parts)): f for f in files}


def forget() -> None:
    """Forget all plug-ins of this process, for tests."""
    _files.clear()
    _broken.clear()
    _entry_points.cache_clear()
