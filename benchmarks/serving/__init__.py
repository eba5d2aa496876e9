"""A real server under everything that clients do to it: figures, and whether its promises held."""
