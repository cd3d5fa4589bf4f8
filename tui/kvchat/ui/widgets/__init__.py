"""The widgets of the main screen. They show what the app feeds them and answer by messages; none knows the service."""
