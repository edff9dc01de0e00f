"""The engine of a Slurm cluster."""
