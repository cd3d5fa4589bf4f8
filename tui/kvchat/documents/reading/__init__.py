"""Read files of each format: their text, and its places in the file."""
