"""Stores each turn losslessly and makes it searchable, by words at once and by vector soon after."""
