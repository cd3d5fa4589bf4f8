"""Plain mode: a conversation line by line, for screen readers and terminals that cannot place text.

Output only grows. No alternate screen, no escape sequence, no glyph in place of a word; what the app
shows around a conversation is said when it matters.
"""
