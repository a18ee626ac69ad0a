"""Certificates: what a release promises, to whom, and how a reader checks it without the run."""

from fedsynth.privacy.certificate.canonical import CertificateDamaged, opened, read_document
from fedsynth.privacy.certificate.check import Verdict, check, read

__all__ = ["CertificateDamaged", "Verdict", "check", "opened", "read", "read_document"]
