"""An HTTP server on 127.0.0.1 that answers by the rules of MLflow's REST interface that matter."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

SLOW = -1  # never answers


@dataclass
class TrackingServerStandIn:
    """statuses: of the next answers, instead of what is asked for."""

    statuses: list[int] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    experiments: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[tuple[str, int, float]] = field(default_factory=list)
    parameters: dict[str, str] = field(default_factory=dict)
    requests: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def steps(self) -> list[int]:
        """Steps that have a loss, in the order in which they came."""
        return [step for name, step, _ in self.metrics if name == "train/loss"]

    def tags(self) -> dict[str, str]:
        """Tags of the only run."""
        (run,) = self.runs
        return {tag["key"]: tag["value"] for tag in run["data"]["tags"]}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests += 1
            self.headers.append(headers)
            status = self.statuses.pop(0) if self.statuses else 200
            if status == SLOW:
                await reader.read()  # until the client goes
            status, said = self._answer(status, first.split(" ")[1], json.loads(body or b"{}"))
            content = json.dumps(said).encode()
            reply = f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {len(content)}"
            writer.write(f"{reply}\r\n\r\n".encode() + content)
            await writer.drain()
        writer.close()

    def _answer(self, status: int, target: str, body: dict[str, Any]) -> tuple[int, Any]:
        if status != 200:
            return status, {"error_code": "X"}
        parts = urlsplit(target)
        match parts.path.removeprefix("/api/2.0/mlflow/"):
            case "experiments/get-by-name":
                (name,) = parse_qs(parts.query)["experiment_name"]
                if name not in self.experiments:
                    return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}
                return 200, {"experiment": {"experiment_id": str(self.experiments.index(name))}}
            case "experiments/create":
                self.experiments.append(body["name"])
                return 200, {"experiment_id": str(len(self.experiments) - 1)}
            case "runs/search":
                name = body["filter"].split("'")[1]
                return 200, {"runs": [run for run in self.runs if run["info"]["name"] == name]}
            case "runs/create":
                info = {"run_id": f"run-{len(self.runs)}", "name": body["run_name"]}
                self.runs.append({"info": info, "data": {"tags": body["tags"], "params": []}})
                return 200, {"run": self.runs[-1]}
            case "runs/log-batch":
                return 200, self._log(body)
            case "runs/update":
                self.runs[0]["info"].update(body)
                return 200, {}
            case other:
                return 404, {"error_code": other}

    def _log(self, body: dict[str, Any]) -> dict[str, Any]:
        self.metrics += [
            (metric["key"], metric["step"], metric["value"]) for metric in body.get("metrics", ())
        ]
        data = self.runs[0]["data"]
        for parameter in body.get("params", ()):
            known = self.parameters.setdefault(parameter["key"], parameter["value"])
            assert known == parameter["value"], "MLflow refuses another value of a parameter"
            data["params"].append(parameter)
        tags = self.tags() | {tag["key"]: tag["value"] for tag in body.get("tags", ())}
        data["tags"] = [{"key": key, "value": value} for key, value in tags.items()]
        return {}


@asynccontextmanager
async def tracking_server(*statuses: int) -> AsyncIterator[TrackingServerStandIn]:
    stand_in = TrackingServerStandIn(list(statuses))
    server = await asyncio.start_server(stand_in.serve, "127.0.0.1", 0)
    stand_in.port = server.sockets[0].getsockname()[1]
    try:
        yield stand_in
    finally:
        server.close()
