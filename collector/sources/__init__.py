"""One file = one thing measured on a node."""
