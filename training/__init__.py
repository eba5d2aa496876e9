"""How the small networks of the package are trained, on walks through procedural houses; run from the checkout."""
