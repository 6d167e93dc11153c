"""Servers that are too slow to start once a module: one each for the whole run."""

from tests.fixtures_postgres import memory_database, postgres

__all__ = ["memory_database", "postgres"]
