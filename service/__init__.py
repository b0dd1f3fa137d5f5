"""The service: named learners over HTTP, behind a durable log. `learners` is the library that it feeds."""

__all__ = ["__version__"]

__version__ = "0.1.0"
