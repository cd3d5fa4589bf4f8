"""Read foreign files in a separate process with limits and no network: a bad file ends that process at most.

The process gets the names of what to read and answers with data alone; it ends with the process that started it.
"""
