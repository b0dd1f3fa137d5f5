"""MLServer with river: a model of its inference protocol, which learns from an input named label.

`python -m benchmarks.service.peer_programs.mlserver_river FOLDER PORT` writes the settings that MLServer reads there,
all on loopback and in one process, and serves; ports PORT + 1 and PORT + 2 are gRPC's and its metrics'.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mlserver import MLModel
from mlserver.cli.main import root
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

from benchmarks.service.peer_programs.river_model import Model

__all__ = ["River", "main"]


class River(MLModel):
    """River's logistic regression."""

    async def load(self) -> bool:
        """Start from nothing."""
        self._model = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Score an event, then learn it."""
        x, label = (list(part.data) for part in payload.inputs)
        output = ResponseOutput(name="score", shape=[1], datatype="FP64", data=[self._model.update(x, bool(label[0]))])
        return InferenceResponse(model_name=self.name, outputs=[output])


def main(folder: Path, port: int) -> None:
    """Serve until the process is ended."""
    settings = {"host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
    server_settings = {"debug": False, "parallel_workers": 0, "metrics_dir": str(folder)}
    (folder / "settings.json").write_text(json.dumps({**settings, **server_settings}))
    model = {"name": "river", "implementation": "benchmarks.service.peer_programs.mlserver_river.River"}
    (folder / "model-settings.json").write_text(json.dumps(model))
    root(["start", str(folder)])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
