"""Consolidates old episodes, archives what the consolidation covers, and can undo it."""
