"""Names of earlier programs as thin adapters over longtake."""
