"""Evidence in, judgement out. Pure functions; only ``pipeline`` reads the store."""
