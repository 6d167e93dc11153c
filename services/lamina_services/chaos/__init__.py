"""Proof that nothing is lost: told under seeded faults, a story ends in the memory of a calm telling."""
