"""Reproduction and comparison of runs."""
