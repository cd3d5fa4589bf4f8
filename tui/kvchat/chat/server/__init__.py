"""The servers that conversations go to: chosen, connected, agreed to, one request at a time."""
