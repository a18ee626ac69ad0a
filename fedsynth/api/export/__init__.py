"""Releases in the forms that other programs read, each with its card and its certificate."""
