"""One test of each real part: programs, stores, brokers, a browser. `pytest tests/smoke` takes minutes."""
