"""Places that are known again: an index of what keyframes look like, and one graph of where windows lie."""
