"""The doctor: looks at a server, tries out what its cache does with a conversation, and says what to change."""
