"""Checkpoints: known sizes, and foreign names for our parameters."""
