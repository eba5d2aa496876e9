"""Procedural worlds with exact truth: houses and other families, ways of a camera, ray casting, and questions.

World axes are those of a camera that looks level: x right, y down, z forward, in metres; the floor is y = 0.
"""
