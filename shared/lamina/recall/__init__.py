"""Pure recall: splitting questions, time words, fusion, token budget, rendering."""
