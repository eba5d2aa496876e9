"""How the small networks of this package are trained, on walks through procedural houses."""
