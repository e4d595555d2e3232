"""Numbered migrations of the store, applied in order and never edited once released."""
