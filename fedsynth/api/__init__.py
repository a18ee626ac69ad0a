"""The Python API: what the commands do, as functions and objects; `fedsynth` exports it."""
