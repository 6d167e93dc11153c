"""Messages on Pub/Sub."""
