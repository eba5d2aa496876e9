"""The streaming geometry transformer: images in, poses, depth and points out, weights and nothing else inside."""
