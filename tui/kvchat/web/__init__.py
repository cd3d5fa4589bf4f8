"""The app in a browser of this machine: a page, a terminal in it, and a kvchat behind each (the extra `web`)."""
