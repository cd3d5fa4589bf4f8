"""What each server's cache holds: tracked, priced, warmed up, saved and explained."""
