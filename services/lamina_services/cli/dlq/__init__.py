"""`lamina dlq`: what could not be processed, why, and what becomes of it."""
