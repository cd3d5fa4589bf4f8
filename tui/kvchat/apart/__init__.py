"""Processes of kvchat's own, each of which ends with the process that started it.

One that reads foreign files has limits and no network, gets the names of what to read and answers with data alone: a
bad file ends that process at most (`process`, and `child.Parent` on its side). One that has a job, such as indexing,
gets a line and answers in lines (`lines`, and `child.first_line` on its side). A program that is not kvchat's has a
`keeper`.
"""
