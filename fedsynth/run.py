"""The command `python -m fedsynth.run scenario=NAME [key=value ...]`: see `fedsynth.cli.run`.

Imported as a module it can also be called: `fedsynth.run(...)` is the function of the API, whether
this module was imported before or not.
"""

import sys
from types import ModuleType
from typing import Any

from fedsynth.cli.run import entry, main

__all__ = ["entry", "main"]


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **keys: Any) -> Any:
        from fedsynth.api.functions import run

        return run(*arguments, **keys)


if __name__ == "__main__":
    entry()
else:
    sys.modules[__name__].__class__ = _CallableModule
