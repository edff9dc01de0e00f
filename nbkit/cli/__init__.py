"""The `nbkit` command: the library in a terminal."""
