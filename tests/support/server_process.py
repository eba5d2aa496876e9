"""A real `longtake serve` in a process of its own, as benchmarks run it too."""

from benchmarks.serving.process import Reply, ServerProcess

__all__ = ["Reply", "ServerProcess"]
