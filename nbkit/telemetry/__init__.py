"""Readings of the machine: GPUs through NVML, CPUs, memory, disks and network."""
