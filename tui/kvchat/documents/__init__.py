"""Documents: reading files, cutting them into chunks, keeping the index of them, and finding passages."""
