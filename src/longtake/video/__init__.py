"""From pictures and films to model pixels."""
