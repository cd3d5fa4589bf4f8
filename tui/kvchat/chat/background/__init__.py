"""Work in the background: the queue of jobs and its kinds, memory and documents on their threads."""
