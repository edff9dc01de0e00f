"""Estimates of the time, cost and memory of a training."""
