"""One file = one benchmark. Each holds one constant, ``BENCHMARK``."""
