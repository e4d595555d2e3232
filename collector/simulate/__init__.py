"""Simulated GPU nodes: a stand-in for NVML, and the scenarios that drive it."""
