"""A run as it is now, for every viewer."""
