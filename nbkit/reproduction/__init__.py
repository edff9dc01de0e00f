"""Running a record again, and comparing runs."""
