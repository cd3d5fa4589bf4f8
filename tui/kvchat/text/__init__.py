"""Words for the values of the core, the same on every screen, on the command line and in exports."""
