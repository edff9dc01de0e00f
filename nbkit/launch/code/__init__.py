"""Code of a run, and permission to execute it."""
