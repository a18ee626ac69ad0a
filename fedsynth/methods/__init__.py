"""Methods of private release, one folder per family; `registry` finds them by their files."""
