"""llama.cpp's cache as kvchat knows it: a simulator of its slots and parked states, and how to send a request best."""
