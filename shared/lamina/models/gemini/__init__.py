"""Gemini as the language model and the embedder. Its modules load google-genai: import them only for use."""
