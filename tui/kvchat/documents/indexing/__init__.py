"""How the files of a collection get into the index."""
