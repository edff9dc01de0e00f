"""Reads the machine: GPUs through NVML, processors, memory, disks and network."""
