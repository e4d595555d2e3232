"""One file = one remedy. Each holds one constant, ``REMEDY``."""
