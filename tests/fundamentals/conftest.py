"""What every chapter starts with."""

from tests.fundamentals.pipeline import pipeline

__all__ = ["pipeline"]
