"""The suite with the newest of everything: what `make test-newest` runs."""
