"""Which memories go in front of a question. Pure but for the search."""
