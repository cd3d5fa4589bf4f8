"""The embedded engine: llama.cpp's server in a child process of ours, and the model files it can load.

This file imports nothing: the child process runs from this package and must stay light.
"""
