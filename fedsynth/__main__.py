"""`python -m fedsynth` is the command `fedsynth`."""

from fedsynth.cli.main import entry

entry()
