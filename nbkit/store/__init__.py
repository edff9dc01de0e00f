"""The store: every run is a folder of small text files, each with one writer."""
