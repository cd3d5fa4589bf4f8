"""llama.cpp's cache as kvchat knows it: a twin of its slots and parked states, and how to send a request best."""
