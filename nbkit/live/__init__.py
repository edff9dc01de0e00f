"""The current state of a run, for every viewer."""
