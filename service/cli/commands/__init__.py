"""What stands behind the command line: files as streams, replay, the demo, and the calls of the HTTP API they make."""
