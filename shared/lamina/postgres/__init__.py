"""Durable memory on PostgreSQL 15+ or AlloyDB, with pgvector 0.8 or later."""
