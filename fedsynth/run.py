"""The command `python -m fedsynth.run scenario=NAME [key=value ...]`: see `fedsynth.cli.run`."""

from fedsynth.cli.run import entry, main

__all__ = ["entry", "main"]

if __name__ == "__main__":
    entry()
