"""Tools that a model calls: what is offered, the user's consent, and the steps of a turn that calls them."""
