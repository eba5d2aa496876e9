"""Weights by name: presets, the local cache of the Hugging Face hub, and downloads into it."""
