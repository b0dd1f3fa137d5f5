"""The HTTP client. Import its names from `rarestream`.

- `sync` and `aio`: `Client` and `AsyncClient`, which do the I/O. Start here.
- `client_calls`: every call of the API, without I/O; `exchange`: retries.
- `encode` and `decode`: NumPy arrays to MessagePack and back. Only calls with arrays import NumPy.
- `frames`: replies as rows and data frames.
- `sync_stream`, `aio_stream`, `stream_session`: pipelined requests over a websocket.
"""
