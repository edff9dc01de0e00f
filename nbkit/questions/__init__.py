"""The questions that the canonical notebooks answer, a folder each."""
