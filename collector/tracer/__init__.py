"""Kernel-level GPU time from inside the process: the CUPTI injection library, and how to read what it publishes."""
