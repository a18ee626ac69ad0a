"""Classifiers for training under privacy and for evaluating synthetic data; one per file."""
