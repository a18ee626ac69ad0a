"""Audits: attacks that bound a mechanism's epsilon from below, without trust in it.

`two_worlds` and `one_run` turn an attack's scores into bounds, `claims` holds what was promised,
`cases` has the worst-case canaries of every mechanism, `recording` the values that an attacker
knows of a whole run, and `breaks` the deliberate errors that an audit must find.
"""
