"""The `lamina` command: one module a command."""
