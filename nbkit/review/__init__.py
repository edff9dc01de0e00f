"""Findings, bottlenecks, bounds and energy of a run, from its files."""
