"""The supervisor of a run: its ranks, attempts and record."""
