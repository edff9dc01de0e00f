"""Traces of GPUs in all states; the one of eight GPUs comes with nbkit."""

from pathlib import Path

TRACES = Path(__file__).parent


def replay(name: str) -> str:
    """Return what NBKIT_GPU_SOURCE is for a trace."""
    return f"replay:{TRACES / name}.jsonl"
