"""Compresses what the buffer lets go of into the session's rolling summary."""
