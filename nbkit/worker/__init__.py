"""What runs inside the ranks; started by name, never imported by the kernel side."""
