"""Derives a user's memory again from the log of turns: beside the memory in use, then in its place."""
