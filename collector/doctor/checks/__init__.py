"""One file = one thing that is looked at, with the constant ``CHECK``."""
