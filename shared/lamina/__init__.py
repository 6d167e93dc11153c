"""Lamina: two-tier, event-driven memory for AI agents."""
