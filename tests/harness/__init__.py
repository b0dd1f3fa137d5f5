"""Start services for tests, and wait.

| Module | The service runs | For |
|---|---|---|
| `apps`, `keyring` | in this process, spoken to over ASGI | replies of routes; `websocket` has websockets |
| `nodes` | in this process, over a store that outlives it | recovery, several nodes, the log |
| `threads`, `raw` | in a thread, behind a real socket | connections, protocols |
| `process` | as processes, one or several over one store | kills, signals, the command line |
| `redis_server`, `redis_fleet`, `kafka_broker` | - | real servers, Sentinels and Clusters |

`waiting` has `eventually`, the one way to wait for a condition. `fixtures` has the fixtures of all tests.
"""
