"""What only developers measure: run from the checkout with `python -m benchmarks`."""
