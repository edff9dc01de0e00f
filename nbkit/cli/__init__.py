"""The `nbkit` command: what the library does, for a terminal."""
