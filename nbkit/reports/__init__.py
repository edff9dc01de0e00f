"""The one report: its parts, its renderer, and what comparisons of arms share."""
