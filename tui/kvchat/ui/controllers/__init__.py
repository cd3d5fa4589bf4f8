"""The main screen: the list, the conversation, the composer, and what can be done with them."""
