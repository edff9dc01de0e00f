"""Sets of images: what they consist of, which of it is readable, packing."""
