"""The HTTP under the dialects: where a server is, the exchange with it, its stream, and the values in its JSON."""
