"""Measurements through the real system: published through the topic, read back from the stores."""
