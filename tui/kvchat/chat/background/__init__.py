"""Work beside the conversations: the queue and its kinds of jobs, memory and documents on their threads."""
