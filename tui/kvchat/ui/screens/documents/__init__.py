"""The documents, for the manager, and the dialogs that it opens."""
