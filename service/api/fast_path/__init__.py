"""Update, predict and labels, in front of FastAPI. Start with `operations`."""

from service.api.fast_path.asgi import Edge, hot_request
from service.api.fast_path.inline import Asked, Direct, Learning
from service.api.fast_path.operations import answer, labelled, told

__all__ = ["Asked", "Direct", "Edge", "Learning", "answer", "hot_request", "labelled", "told"]
