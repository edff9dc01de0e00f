"""A run while it continues: its files followed, in bounded memory.

What is shown of a run under way comes from here. Files are read from where the last
look ended; lines of millions of points are kept at a thousand.
"""
