"""Keeps an index of dead letters, so that a receipt can say why a turn is parked."""
