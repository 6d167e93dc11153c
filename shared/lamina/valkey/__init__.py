"""The buffer on Valkey."""
