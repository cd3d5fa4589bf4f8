"""Reading: what a file of each format says, and where in it."""
