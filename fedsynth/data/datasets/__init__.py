"""The data sets. A file holds the set of its own name and those whose names begin with it.

`data.registry` finds a set by this rule and imports only its file; sets in other files are found as
well, after all files have been imported.
"""
