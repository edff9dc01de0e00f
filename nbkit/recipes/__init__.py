"""Published experiments and training recipes as configurations."""
