"""What the services tell of themselves."""
