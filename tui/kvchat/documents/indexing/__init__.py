"""Put the files of a collection into the index."""
