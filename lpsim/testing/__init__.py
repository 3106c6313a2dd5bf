"""What users import into their own tests: faulty casts that a good test must reject."""

from . import mutants as mutants

__all__ = ["mutants"]
