"""What the canonical notebooks share: parameters, studies and the one report."""
