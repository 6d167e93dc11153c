"""`lamina demo`: a conversation over two sessions, what each memory then holds, and what must be so."""
