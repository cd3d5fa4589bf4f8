"""What each server's cache holds: followed, priced, warmed up, saved and explained."""
