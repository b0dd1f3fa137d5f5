"""What must not change: streams to the bit, stores, HTTP and websocket exchanges.

The recordings beside these tests come from an earlier version of the code. `python -m tests.compatibility record`
makes new ones. The tests use what users use: the names of `learners`, `python -m service`, HTTP, websockets, SQLite
files and Redis, and for the exchanges `service.api.create_app`. So modules may move and classes may change their names.
"""
