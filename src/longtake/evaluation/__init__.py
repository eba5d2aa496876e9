"""A result against the truth: trajectories, depth, points and answers, by metrics with one definition each."""
