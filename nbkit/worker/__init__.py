"""Code that runs in the ranks; started by name, never imported by the kernel."""
