"""Finds methods by name and imports only the modules that are needed.

The source files below `fedsynth/methods` and those of plug-ins are searched, without importing
them, for classes whose body assigns the literals `name` and `summary`. `method(name)` then imports
the one module in which that name is. `NAME_without_noise` is the reference of the private method
NAME (`methods.without_noise`); these names are not listed.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import fedsynth.methods
from fedsynth.core.errors import UserError, unknown
from fedsynth.core.plugins import (
    broken,
    describe_error,
    import_source,
    load_file,
    mark_broken,
    modules_below,
    plugins,
)

if TYPE_CHECKING:  # it imports torch, and the names of methods are known without
    from fedsynth.methods.method import Method

WITHOUT_NOISE = "_without_noise"  # ends the name of a private method's reference without its noise


@dataclass(frozen=True)
class _Source:
    """The place of one method's class in a source file."""

    label: str  # of its file or plug-in, in messages
    file: Path
    module: str
    cls: str
    summary: str  # empty if it is not a literal
    clash: str = ""  # the file that defines the same name


def method(name: str) -> Method:
    """The method of this name, or its reference without noise for NAME_without_noise.

    Raises:
        UserError: There is no such method, two files define it, its module cannot be imported, or
            a reference is asked for without the noise that it does not have.
    """
    source = _of_package().get(name) or _all_sources().get(name)
    if source is None and _has_noise(name):
        from fedsynth.methods.without_noise import without_its_noise

        return without_its_noise(method(_base_name(name)), name)
    if source is None:
        raise unknown("method", name, method_names())
    if source.clash:
        raise UserError(f"two methods are called {name!r}: in {source.file} and {source.clash}.")
    return _instance(source)


def is_method(name: object) -> bool:
    """True if there is a method of this name. Imports none."""
    return name in _of_package() or name in _all_sources() or _has_noise(name)


def _base_name(name: object) -> str:
    return str(name).removesuffix(WITHOUT_NOISE)


def _has_noise(name: object) -> bool:
    """True for the name of a method without its noise."""
    return _base_name(name) != name and is_method(_base_name(name))


def method_names() -> tuple[str, ...]:
    """The names of all methods. Imports none."""
    return tuple(sorted(_all_sources()))


def summaries() -> dict[str, str]:
    """The summary of every method, by name; those of the package are read from its source files.

    Methods of plug-ins are imported; the reason for those that cannot be is in `plugins.broken()`.
    """
    texts: dict[str, str] = {}
    for name, source in sorted(_all_sources().items()):
        if source.summary and name in _of_package() and not source.clash:
            texts[name] = source.summary
        elif loaded := _unbroken(name):
            texts[name] = loaded.summary
    return texts


def all_methods() -> Mapping[str, Method]:
    """One instance of every method, by name; imports all of them.

    Methods that cannot be imported are left out, and `plugins.broken()` has the reason."""
    found = {name: _unbroken(name) for name in method_names()}
    return {name: loaded for name, loaded in found.items() if loaded is not None}


def _unbroken(name: str) -> Method | None:
    """A method by name; None if it cannot be imported, and then its source is marked as broken."""
    try:
        return method(name)
    except UserError as error:
        mark_broken(_all_sources()[name].label, str(error).rstrip("."))
        return None


def load_plugins(paths: Iterable[str]) -> None:
    """Import plug-in files; their methods and data sets are found from then on.

    Raises:
        UserError: A file is missing or cannot be imported, or defines a method that exists already.
    """
    for path in paths:
        label = load_file(path).label
        _all_sources()
        if label in broken():
            raise UserError(f"{label} cannot be loaded: {broken()[label]}.")


@functools.cache
def _of_package() -> Mapping[str, _Source]:
    """The methods in the folder of this package, by name."""
    sources: dict[str, _Source] = {}
    for folder in map(Path, fedsynth.methods.__path__):
        for module, file in modules_below(folder, fedsynth.methods.__name__).items():
            for source, name in _declared(str(file), module, file):
                if name in sources:
                    sources[name] = replace(sources[name], clash=str(file))
                    continue
                sources[name] = source
    return sources


def _all_sources() -> Mapping[str, _Source]:
    """The methods of the package and, where their names are not taken, of plug-ins."""
    sources = dict(_of_package())
    for plugin in plugins():
        for module, file in plugin.modules.items():
            for source, name in _declared(plugin.label, module, file):
                known = sources.setdefault(name, source)
                if known != source:
                    reason = f"it defines a method {name!r}, and so does {known.file}"
                    mark_broken(plugin.label, reason)
    return sources


@functools.cache
def _declared(label: str, module: str, file: Path) -> tuple[tuple[_Source, str], ...]:
    """The classes in a source file that assign a literal `name` and a `summary`, with their name;
    none of a file that cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        mark_broken(label, describe_error(error))
        return ()
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return tuple(
        (_Source(label, file, module, cls.name, assigned["summary"]), assigned["name"])
        for cls in classes
        if {"name", "summary"} <= (assigned := _assigned(cls)).keys() and assigned["name"]
    )


def _assigned(cls: ast.ClassDef) -> dict[str, str]:
    """The names that a class body assigns, with their value where it is a text."""
    values: dict[str, str] = {}
    for node in cls.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        text = value.value if isinstance(value, ast.Constant) else ""
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                values[target.id] = text if isinstance(text, str) else ""
    return values


@functools.cache
def _instance(source: _Source) -> Method:
    """The method of this source, whose module is imported if it is not yet."""
    from fedsynth.methods.method import Method

    import_source(source.module, source.label)
    cls = getattr(sys.modules[source.module], source.cls)
    if not issubclass(cls, Method):
        raise UserError(f"{source.cls} in {source.file} has a name and a summary and is no Method.")
    return cls()
