"""What is asked of a model about the person, and what is believed of its answer. Pure."""
