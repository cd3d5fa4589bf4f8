"""One module per dialect: how each kind of server is recognised, asked and read."""
