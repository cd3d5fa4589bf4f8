"""Reading what comes from outside in a process apart, which has limits and reaches nothing: what is wrong with a file
ends that one at most.

The rule: a process apart is told what to read and answers with data alone; it ends with whoever started it.
"""
