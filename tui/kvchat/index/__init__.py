"""The search index over memories and documents: derived from them, and made anew whenever it is gone."""
