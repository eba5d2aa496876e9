"""A mapped video as files people use: one sink for each format, written while the video runs or when it has ended."""
