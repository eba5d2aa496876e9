"""The 3D view, in JavaScript: modules that a server hands out as they are, and a report carries as one script."""
