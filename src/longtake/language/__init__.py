"""Words about a video: frames to patches, tokens of a stream and their positions."""
