"""How long, how dear and how large a training will be."""
