"""The database file: opened, checked, backed up, and read although it is damaged."""
