"""The modal screens. Each takes plain values or a narrow protocol, and answers by one typed result or None."""
