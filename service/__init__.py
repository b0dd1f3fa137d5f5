"""The service: named learners over HTTP and websocket, behind a durable log. `learners` is the library it feeds."""
