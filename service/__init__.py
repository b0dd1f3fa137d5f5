"""The service: named learners over HTTP, behind a durable log. `learners` is the library that it feeds."""
