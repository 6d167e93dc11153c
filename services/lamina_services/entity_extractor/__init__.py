"""Extracts preferences, rules, vetoes, decisions and facts from each turn."""
