"""Studies: configurations, each run several times, in a balanced order."""
