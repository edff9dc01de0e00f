"""The variables by which accelerate is told what `notebook_launcher` was asked for."""

from __future__ import annotations

MIXED_PRECISION = "ACCELERATE_MIXED_PRECISION"
"""https://huggingface.co/docs/accelerate/package_reference/accelerator"""
USE_CPU = "ACCELERATE_USE_CPU"
"""Without it, an `Accelerator` on processors does not look for the other ranks."""
