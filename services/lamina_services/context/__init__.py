"""The read side: the memory for one prompt, searches, and what a context cut short."""
