"""One file = one foreign format. Each holds one constant, ``IMPORTER``."""
