"""Measurements of longtake itself that anyone can repeat."""
