"""Report of a study: parts, renderer, comparisons of arms."""
