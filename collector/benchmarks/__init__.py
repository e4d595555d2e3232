"""One file = one benchmark of the agent or the tracer. Each holds one constant, ``BENCHMARK``."""
