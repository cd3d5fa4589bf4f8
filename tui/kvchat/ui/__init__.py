"""The app: the main screen, its dialogs, and the terminal under them."""
