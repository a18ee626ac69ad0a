"""Data sets, their files, and the partition of their records among parties."""
