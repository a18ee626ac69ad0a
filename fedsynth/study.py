"""The command `python -m fedsynth.study [key=value ...]`: see `fedsynth.cli.study`."""

import sys

from fedsynth.cli.study import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
