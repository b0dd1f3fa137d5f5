"""The private attributes of uvicorn, websockets, numba, llvmlite and scikit-learn that this project builds on.

pyproject.toml bounds these packages from above, because a minor release may change any name below. Raise a bound only
when this file, the tests of the protocols and the tests of the kernels pass with the new release.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import pytest
import uvicorn
from llvmlite import ir
from numba.core import types
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typing.templates import ConcreteTemplate
from numba.extending import models
from sklearn.ensemble import HistGradientBoostingClassifier
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.sync.client import ClientConnection
from websockets.uri import parse_uri

from learners.numerics.kernel_cache import KernelCache
from rarestream.client.tls_stream import StreamConnection
from service.server.http_protocol import HttpProtocol
from service.server.http_transport import Flow
from service.server.run import Server
from service.server.worker import Worker
from service.server.ws_protocol import WebSocketProtocol
from tests.harness.pipe import Pipe

HTTP = """
    _unset_keepalive_if_required app_state client config connection_lost connection_made connections cycle data_received
    expect_100_continue flow headers limit_concurrency loop on_body on_headers_complete on_message_begin
    on_message_complete on_response_complete parser pause_writing pipeline resume_writing scope server_state shutdown
    tasks timeout_keep_alive timeout_keep_alive_handler timeout_keep_alive_task transport url ws_protocol_class
"""
FLOW = "read_paused resume_reading"
WEBSOCKET = """
    client close_sent close_timeout config conn connection_lost curr_msg_data_type data_received disconnected frames
    handle_bytes handle_connect handle_cont handle_events handle_parser_exception handle_ping handle_text
    handshake_complete initial_response keepalive_timeout loop on_task_complete queue read_paused receive response
    resume_writing scope send
    send_receive_event_to_app shutdown transport writable
"""
SERVER = "capture_signals config force_exit on_tick run server_state shutdown startup"
WORKER = "should_exit startup"
STREAM = "close protocol send socket"
CACHE = "cache_path disable enable flush load_overload save_overload"

# of objects that are no base classes of ours
CYCLE = "disconnected keep_alive message_event more_body response_complete scope"
CONFIG = "access_log http_protocol_class load loaded_app ssl ws_max_size"
STATE = "connections default_headers tasks total_requests"
CONNECTION = "current_size data_to_send logger reject send_close send_response state"  # of the websocket's `conn`
BUILDER = """
    add bitcast extract_element extract_value fadd fcmp_ordered fdiv fmul fpext fptrunc fsub gep icmp_signed
    insert_element load module mul select shuffle_vector store call
"""

HANDSHAKE = b"\r\n".join(
    [
        b"GET / HTTP/1.1",
        b"host: x",
        b"connection: upgrade",
        b"upgrade: websocket",
        b"sec-websocket-version: 13",
        b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"\r\n",
    ]
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Return an ASGI application that answers nothing."""


def config() -> uvicorn.Config:
    loaded = uvicorn.Config(app, log_config=None, ws_per_message_deflate=False)
    loaded.load()
    return loaded


@contextmanager
def bases() -> Iterator[dict[type, Any]]:
    """Return an instance of the foreign base class of each of our classes."""
    http = HttpToolsProtocol(config(), ServerState(), {})
    http.connection_made(Pipe())
    http.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")  # some attributes exist only from then on
    websocket = WebSocketsSansIOProtocol(config(), ServerState(), {})
    websocket.connection_made(Pipe())
    websocket.data_received(HANDSHAKE)
    server = uvicorn.Server(config())
    ours, theirs = socket.socketpair()
    stream = ClientConnection(ours, ClientProtocol(parse_uri("ws://localhost/")))
    try:
        yield {
            HttpProtocol: http,
            Flow: FlowControl(Pipe()),
            WebSocketProtocol: websocket,
            Server: server,
            Worker: server,
            StreamConnection: stream,
            KernelCache: FunctionCache(app_in_a_file),
        }
    finally:
        theirs.close()
        stream.recv_events_thread.join(5)
        ours.close()


def app_in_a_file(x: float) -> float:
    return x


def names_used(cls: type) -> set[str]:
    """Return the attributes of `self` and of `super()` in a class, and what the class defines."""
    (tree,) = ast.parse(inspect.getsource(cls)).body
    attribute_names = {name for name in vars(cls) if not name.startswith(("__", "_abc_"))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()"):
            attribute_names.add(node.attr)
    return {name for name in attribute_names if not name.startswith("__")}


INHERITED = {
    HttpProtocol: HTTP,
    Flow: FLOW,
    WebSocketProtocol: WEBSOCKET,
    Server: SERVER,
    Worker: WORKER,
    StreamConnection: STREAM,
    KernelCache: CACHE,
}


@pytest.mark.parametrize("cls", INHERITED, ids=lambda cls: cls.__name__)
async def test_base_classes_have_the_attributes_used_by_subclasses(cls: type) -> None:
    names = set(INHERITED[cls].split())
    with bases() as instances:
        base = instances[cls]
        missing = {name for name in names if not hasattr(base, name)}
        assert not missing, f"{type(base).__module__}.{type(base).__name__} no longer has {sorted(missing)}"
        # both what we use and do not list, and what a release adds under a name of ours
        unlisted = {name for name in names_used(cls) - names if hasattr(base, name)}
        assert not unlisted, f"{type(base).__module__}.{type(base).__name__} also has {sorted(unlisted)}"
        assert names <= names_used(cls), "listed above and used no longer"


async def test_uvicorn_and_websockets_objects_have_the_attributes_we_read() -> None:
    loaded = config()
    arguments: Any = dict.fromkeys(inspect.signature(RequestResponseCycle).parameters)
    cycle = RequestResponseCycle(**arguments)
    objects: dict[str, tuple[Any, str]] = {
        "uvicorn.Config": (loaded, CONFIG),
        "uvicorn.server.ServerState": (ServerState(), STATE),
        "uvicorn RequestResponseCycle": (cycle, CYCLE),
        "uvicorn ProxyHeadersMiddleware": (ProxyHeadersMiddleware(app), "app trusted_hosts"),
        "uvicorn FlowControl": (FlowControl(Pipe()), "pause_reading resume_reading write_paused"),
        "websockets.server.ServerProtocol": (ServerProtocol(), CONNECTION),
        "websockets.client.ClientProtocol": (ClientProtocol(parse_uri("ws://localhost/")), "data_to_send"),
        "llvmlite.ir.IRBuilder": (
            ir.IRBuilder(ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "f").append_basic_block()),
            BUILDER,
        ),
    }
    for name, (thing, attributes) in objects.items():
        missing = [attribute for attribute in attributes.split() if not hasattr(thing, attribute)]
        assert not missing, f"{name} no longer has {missing}"


def test_uvicorn_behaves_as_our_protocols_expect() -> None:
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"
    assert issubclass(ClientDisconnected, OSError)  # what `write_messages` promises to raise
    assert list(inspect.signature(HttpToolsProtocol).parameters)[:1] == ["config"]
    assert config().loaded_app.__class__ is ProxyHeadersMiddleware
    assert State.OPEN in State
    assert "self.lifespan" in inspect.getsource(uvicorn.Server._serve)


async def test_uvicorn_answers_pipelined_requests_in_order() -> None:
    """`InlineCycle` stands for a request under way: uvicorn must then queue the next request in `pipeline`."""
    protocol = HttpToolsProtocol(config(), ServerState(), {})
    protocol.connection_made(Pipe())
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
    assert len(protocol.pipeline) == 1
    assert len(protocol.tasks) == 1
    await asyncio.gather(*protocol.tasks)


def test_numba_has_the_names_used_by_the_kernels() -> None:
    assert hasattr(numba.config, "CACHE_DIR")
    with global_compiler_lock:
        pass
    for options in ({"_nrt": False}, {"forceinline": True}):
        compiled: Any = numba.njit(nogil=True, error_model="numpy", **options)(app_in_a_file)
        assert compiled is app_in_a_file or compiled(2.0) == 2.0
        if compiled is not app_in_a_file:  # it is that where kernels run as plain Python
            assert hasattr(compiled, "_cache")
            assert list(inspect.signature(compiled.compile).parameters) == ["sig"]
            assert list(inspect.signature(compiled.get_call_template).parameters) == ["args", "kws"]
    assert list(inspect.signature(FunctionCache.load_overload).parameters) == ["self", "sig", "target_context"]
    assert list(inspect.signature(FunctionCache.save_overload).parameters) == ["self", "sig", "data"]
    assert issubclass(ConcreteTemplate, object)
    assert issubclass(models.PrimitiveModel, models.DataModel)
    assert types.Array(types.float64, 1, "C").layout == "C"


def test_llvmlite_emits_vectors_of_eight_numbers() -> None:
    vector = ir.VectorType(ir.DoubleType(), 8)
    assert str(vector) == "<8 x double>"
    assert "<8 x double>" in str(ir.Constant(vector, [0.0] * 8))
    assert "undef" in str(ir.Constant(vector, ir.Undefined))


def test_scikit_learn_has_the_nodes_of_boosted_trees() -> None:
    X = np.arange(40.0)[:, None]
    machine = HistGradientBoostingClassifier(max_iter=2, early_stopping=False, min_samples_leaf=5)
    machine.fit(X, X[:, 0] > 20)
    assert machine._baseline_prediction.shape == (1, 1)
    assert [len(predictors) for predictors in machine._predictors] == [1, 1]
    names = {"is_leaf", "left", "right", "feature_idx", "missing_go_to_left", "num_threshold", "value", "gain"}
    assert names <= set(machine._predictors[0][0].nodes.dtype.names)
