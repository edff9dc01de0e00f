"""Published results and the vocabulary of their GPUs."""
