"""One file = one place that knows which job holds which device."""
