"""Cache events of vLLM and SGLang: a publisher made of their own parts (pyzmq, msgspec, their structures) before the real router."""
import contextlib
import http.server
import json
import threading
from typing import Any

import msgspec
import pytest
import zmq

from fleet import Process, free_ports, get, post, until


class Backend(http.server.ThreadingHTTPServer):
    """An OpenAI-compatible server that answers everything alike."""

    daemon_threads = True

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, body, kind="application/json"):
                data = body.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                models = {"object": "list", "data": [{"id": "m", "object": "model"}]}
                self.answer(json.dumps(models) if self.path == "/v1/models" else "ok")

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(json.dumps({"object": "text_completion", "choices": [{"index": 0, "text": "x", "finish_reason": "stop"}]}))

            def log_message(self, *arguments):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


def structures(as_arrays):
    """The fields in the engines' order; SGLang and older vLLM write them as arrays, newer vLLM as maps."""
    options = {"array_like": as_arrays, "omit_defaults": True, "gc": False}

    class BlockStored(msgspec.Struct, tag=True, **options):
        block_hashes: list
        parent_block_hash: Any
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None = None
        lora_name: str | None = None

    class BlockRemoved(msgspec.Struct, tag=True, **options):
        block_hashes: list
        medium: str | None = None

    class AllBlocksCleared(msgspec.Struct, tag=True, **options):
        pass

    class EventBatch(msgspec.Struct, **options):
        ts: float
        events: list[Any]
        data_parallel_rank: int | None = None

    return BlockStored, BlockRemoved, AllBlocksCleared, EventBatch


class Publisher:
    """As ZmqEventPublisher: PUB for events, ROUTER for the replay of the last batches."""

    def __init__(self, as_arrays):
        self.Stored, self.Removed, self.Cleared, self.Batch = structures(as_arrays)
        self.context = zmq.Context()
        self.pub = self.context.socket(zmq.XPUB)  # tells of subscribers, otherwise a PUB
        self.replay = self.context.socket(zmq.ROUTER)
        self.port = self.pub.bind_to_random_port("tcp://127.0.0.1")
        self.replay_port = self.replay.bind_to_random_port("tcp://127.0.0.1")
        self.buffer = []
        self.encoder = msgspec.msgpack.Encoder()

    def await_subscriber(self):
        assert self.pub.poll(20_000)
        self.pub.recv()

    def publish(self, *events, lost=False):
        payload = self.encoder.encode(self.Batch(1.0, list(events), 0))
        sequence = len(self.buffer)
        self.buffer.append(payload)
        if not lost:
            self.pub.send_multipart((b"kv-events", sequence.to_bytes(8, "big"), payload))

    def serve_replay(self):
        assert self.replay.poll(20_000)
        client, _, start = self.replay.recv_multipart()
        for sequence in range(int.from_bytes(start, "big"), len(self.buffer)):
            self.replay.send_multipart((client, b"", sequence.to_bytes(8, "big"), self.buffer[sequence]))
        self.replay.send_multipart((client, b"", (-1).to_bytes(8, "big", signed=True), b""))

    def close(self):
        self.pub.close(0)
        self.replay.close(0)
        self.context.term()


@pytest.fixture(params=["arrays", "maps"])
def running(request, tmp_path):
    publisher = Publisher(request.param == "arrays")
    one, other = Backend(), Backend()
    port = free_ports(1)[0]
    path = tmp_path / "router.yaml"
    path.write_text(f"listen: 127.0.0.1:{port}\nbackends:\n  - url: {other.url}\n  - url: {one.url}\n    kv_events:\n"
                    f"      endpoint: tcp://127.0.0.1:{publisher.port}\n      replay: tcp://127.0.0.1:{publisher.replay_port}\n")
    router = Process("router", "--config", str(path), "--drain-seconds", "1")
    url = f"http://127.0.0.1:{port}"

    def up():
        assert router.alive(), router.output()
        with contextlib.suppress(OSError):
            return sum(r["state"] == "up" and r["models"] == ["m"] for r in get(url + "/admin/v1/replicas").json["replicas"]) == 2

    try:
        until(up, "both backends up")
        publisher.await_subscriber()
        yield publisher, url, one.url
    finally:
        router.stop()
        publisher.close()
        one.shutdown()
        other.shutdown()


def predicted(url, tokens):
    answer = post(url + "/v1/completions", {"model": "m", "prompt": tokens, "max_tokens": 1}, headers={"Content-Type": "application/json"})
    assert answer.status == 200, answer.body
    return int(answer.headers["x-kvring-predicted-cached-tokens"]), answer.headers["x-kvring-replica"]


def replica(url, backend):
    return next(r for r in get(url + "/admin/v1/replicas").json["replicas"] if r["url"] == backend)


def test_PFX_11_PFX_12_events_place_token_prompts_and_gaps_heal(running):
    publisher, url, backend = running
    first, second = list(range(100, 132)), list(range(500, 532))
    hashes = [bytes([n]) * 32 for n in range(8)]
    publisher.publish(publisher.Stored([hashes[0], hashes[1]], None, first, 16, None, "GPU"))
    until(lambda: replica(url, backend)["cache_events"] == "whole", "events are believed")
    assert predicted(url, first + [1]) == (32, replica(url, backend)["id"])
    publisher.publish(publisher.Removed([hashes[1]], "GPU"), lost=True)
    publisher.publish(publisher.Stored([hashes[2], hashes[3]], None, second, 16, None, "GPU"))
    until(lambda: replica(url, backend)["cache_event_gaps"] == 1, "the gap is seen")
    publisher.serve_replay()
    until(lambda: replica(url, backend)["cache_events"] == "whole", "the gap is healed")
    assert predicted(url, second + [1]) == (32, replica(url, backend)["id"])
    health = get(url + "/admin/v1/health").json
    assert not any("cache events" in w for w in health["warnings"])
    publisher.publish(publisher.Cleared())
    third = list(range(900, 932))
    publisher.publish(publisher.Stored([hashes[4]], hashes[5], third[:16], 16, None, "GPU"))  # a parent that nobody told of
    until(lambda: replica(url, backend)["cache_events"] == "missing", "the unknown parent is a gap")
    assert any("cache events are missing" in w for w in get(url + "/admin/v1/health").json["warnings"])
    assert b'kvring_replica_cache_events_missing{replica="' in get(url + "/metrics").body
