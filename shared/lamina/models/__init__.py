"""Language models and embedders, one adapter a file."""
