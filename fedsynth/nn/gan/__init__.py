"""Generators, which see only what was released, and critics, which are trained on records."""
