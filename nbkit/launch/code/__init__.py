"""What a run executes, and whether it may."""
