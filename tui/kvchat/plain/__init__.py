"""Plain mode: a conversation line by line, for screen readers and terminals that cannot place text.

Output only grows. No alternate screen, no escape sequence, no glyph that stands for a word; what the app
shows beside a conversation is said when it matters.
"""
