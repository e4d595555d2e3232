"""One file = one page, found by a scan for its constant ``PAGE``."""
