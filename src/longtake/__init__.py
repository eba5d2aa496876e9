"""longtake watches a video that never cuts: frames go in one by one, geometry comes out at once."""

__version__ = "0.1.0"
