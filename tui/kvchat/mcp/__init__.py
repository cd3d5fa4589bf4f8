"""A client of the Model Context Protocol: servers of the user's own, as programs or at an address."""
