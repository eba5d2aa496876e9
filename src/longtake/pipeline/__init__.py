"""From a source through a session to sinks: stages side by side, joined by bounded queues; checkpoints and resume."""
