"""What can be done, wherever: actions with their keys and slash commands, settings one by one, the external editor.

It knows no surface: the command line, plain mode and the app are above it.
"""
