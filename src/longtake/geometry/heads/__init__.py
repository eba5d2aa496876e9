"""What the trunk's features become: camera poses, depth, points."""
