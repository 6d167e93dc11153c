"""An in-memory adapter for each port. Import the port's module, e.g. `lamina.testing.buffer`."""
