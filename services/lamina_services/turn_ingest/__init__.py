"""Takes turns in: into the buffer, and on to everyone who learns from them."""
