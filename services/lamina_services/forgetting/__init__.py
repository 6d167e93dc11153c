"""Forgetting for good, in every place that holds a user's words."""
