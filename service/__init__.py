"""The service: named learners over HTTP and websocket, behind a durable log. `learners` is the library it feeds.

Layers, from below; each imports from those below it alone:

- `wire` (formats), `storage` (the log), `auth` (keys), `telemetry`: they do not know each other;
- `engine`: learners that follow their logs;
- `api`: routes, documents and the fast path;
- `server`: sockets and worker processes;
- `cli`: the command line.

Beside them: `datasets` reads files, `connectors` read Kafka and Redis streams, `dashboard` is the page.
Start with `api/operations.py` for a request, then `engine/replica` for what a learner does with it.
"""
