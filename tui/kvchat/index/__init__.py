"""The search index over memories and documents: derived from them, and rebuilt whenever it is gone."""
