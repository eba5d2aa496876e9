"""Procedural houses with exact truth: rooms, walks, ray casting, and questions about what was visible.

World axes are those of a camera that looks level: x right, y down, z forward, in metres; the floor is y = 0.
"""
