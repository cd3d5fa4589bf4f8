"""The composer: a message while it is written, and what goes with it."""
