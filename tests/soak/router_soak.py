#!/usr/bin/env python3
"""The router under mixed load for a long time while its backends are killed, frozen, added and removed, and its configuration changes.

  tests/soak/router_soak.py [--seconds 1800] [--seed 1] [--kvring FILE] [--clients 24] [--rate 120]

Backends are processes of their own (this file, `backend PORT`), with a first token after some milliseconds and streamed or whole answers.
One thing at a time happens to one of them. Clients stream or not, send short and long prompts of a bounded set,
name sessions or not, and one in twenty goes away in the middle. What must hold, else exit code 1:

  every backend is up again within a minute        after each trouble
  no request that had no first byte fails          whatever happens to its replica, it is answered by another one
  an answer that breaks says so                    after a kill, a stream ends with an error event, never with [DONE]
  RSS is flat                                      of the last third of the run at most 4 MB above that of the middle third
  at the end all gauges are zero                   requests in flight, tokens awaited, requests that wait, client connections
"""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKENDS = 6
RSS_SLACK_MB = 4
# What they may show when nothing runs: the connection that asks is one.
GAUGES = {"kvring_replica_in_flight": 0, "kvring_replica_pending_prefill_tokens": 0, "kvring_queued_requests": 0, "kvring_client_connections": 1}


# ---- a backend ----

async def read_request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head.split(b" ", 2)[1].decode(), await reader.readexactly(length) if length else b""


def chunk(text):
    data = b"data: " + text.encode() + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(body, kind=b"application/json"):
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


async def answer(path, body, writer):
    if path == "/v1/models":
        return writer.write(whole(b'{"object":"list","data":[{"id":"m","object":"model"}]}'))
    if path == "/metrics":
        return writer.write(whole(b"vllm:num_requests_running 0\n", b"text/plain"))
    if not path.startswith("/v1/"):
        return writer.write(whole(b"{}"))
    request = json.loads(body)
    tokens = request.get("max_tokens", 8)
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": len(body) // 8}}
    await asyncio.sleep(0.01)
    if not request.get("stream"):
        await asyncio.sleep(0.01 * tokens)
        text = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "tok " * tokens}, "finish_reason": "stop"}], "usage": usage}
        return writer.write(whole(json.dumps(text).encode()))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(tokens):
        writer.write(chunk('{"choices":[{"index":0,"delta":{"content":"tok "}}]}'))
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(chunk(json.dumps({"choices": [], "usage": usage})) + chunk("[DONE]") + b"0\r\n\r\n")


async def serve_connection(reader, writer):
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            await answer(*await read_request(reader), writer)
            await writer.drain()
    writer.close()


async def serve_backend(port):
    server = await asyncio.start_server(serve_connection, "127.0.0.1", port, limit=1 << 22)
    await server.serve_forever()


# ---- the fleet and what happens to it ----

def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Fleet:
    def __init__(self, options):
        self.router_port, *self.ports = free_ports(BACKENDS + 1)
        self.processes = {port: self.start_backend(port) for port in self.ports}
        self.members = set(self.ports)
        self.config = pathlib.Path(tempfile.mkdtemp(prefix="kvring-soak-")) / "router.yaml"
        self.edits = 0
        self.write_config()
        self.router = subprocess.Popen([options.kvring, "router", "--config", str(self.config)], stderr=open(self.config.parent / "router.log", "w"))

    @staticmethod
    def start_backend(port):
        return subprocess.Popen([sys.executable, __file__, "backend", str(port)])

    def write_config(self):
        self.edits += 1
        urls = "".join(f"  - url: http://127.0.0.1:{port}\n    kv_tokens: 40000\n" for port in sorted(self.members))
        text = (f"listen: 127.0.0.1:{self.router_port}\nthreads: 2\nindex_bytes: 16777216\nhealth:\n  eject_ms: 2000\n  slow_start_ms: 2000\nlimits:\n  max_losses: 4\n  max_attempts: 6\n"
                f"  max_in_flight_per_replica: 64\naliases:\n  - name: alias-{self.edits % 3}\n    model: m\n  - name: alias\n    model: m\nbackends:\n{urls}")
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.config)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.router_port}{path}", timeout=10) as answer:
            return answer.read().decode()

    def replicas(self):
        return json.loads(self.get("/admin/v1/replicas"))["replicas"]

    def rss_mb(self):
        pages = int(pathlib.Path(f"/proc/{self.router.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def stop(self):
        for process in [self.router, *self.processes.values()]:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in [self.router, *self.processes.values()]:
            process.wait()


async def all_up(fleet):
    while True:
        with contextlib.suppress(OSError):
            views = await asyncio.to_thread(fleet.replicas)
            if len(views) == len(fleet.members) and all(view["state"] == "up" for view in views):
                return
        await asyncio.sleep(0.2)


async def kill(fleet, port):
    fleet.processes[port].kill()
    fleet.processes[port].wait()
    await asyncio.sleep(random.uniform(1, 5))
    fleet.processes[port] = fleet.start_backend(port)


async def freeze(fleet, port):
    fleet.processes[port].send_signal(signal.SIGSTOP)
    await asyncio.sleep(random.uniform(1, 8))
    fleet.processes[port].send_signal(signal.SIGCONT)


async def leave_and_return(fleet, port):
    fleet.members.discard(port)
    fleet.write_config()
    await asyncio.sleep(random.uniform(1.5, 5))
    fleet.members.add(port)
    fleet.write_config()
    await asyncio.sleep(1.5)


async def change_aliases(fleet, _):
    fleet.write_config()
    fleet.router.send_signal(signal.SIGHUP)
    await asyncio.sleep(0.5)


async def trouble(fleet, counts):
    while True:
        event = random.choice([kill, freeze, leave_and_return, change_aliases])
        counts[event.__name__] += 1
        await event(fleet, random.choice(fleet.ports))
        try:
            await asyncio.wait_for(all_up(fleet), 60)
        except asyncio.TimeoutError:
            counts[f"LOST backends a minute after {event.__name__}"] += 1
            return
        await asyncio.sleep(random.uniform(0.2, 1.5))


# ---- the load ----

def request_bytes(rng):
    stream = rng.random() < 0.6
    long = rng.random() < 0.2
    head = f"You are assistant {rng.randrange(12)}. " * (300 if long else 20)
    body = json.dumps({"model": rng.choice(["m", "alias", "default"]), "stream": stream, "max_tokens": rng.choice([2, 8, 40]),
                       "messages": [{"role": "system", "content": head}, {"role": "user", "content": f"Question {rng.randrange(400)}?"}]}).encode()
    session = f"X-Session-Id: s{rng.randrange(100)}\r\n" if rng.random() < 0.5 else ""
    return f"POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\n{session}Content-Length: {len(body)}\r\n\r\n".encode() + body, stream


async def ask(fleet, rng, counts):
    """One request on a connection of its own; counts how it ended."""
    message, stream = request_bytes(rng)
    leaves = rng.random() < 0.05
    reader, writer = await asyncio.open_connection("127.0.0.1", fleet.router_port, limit=1 << 22)
    head = body = b""
    try:
        writer.write(message)
        if leaves and rng.random() < 0.5:
            counts["client left before the answer"] += 1
            return
        head = await reader.readuntil(b"\r\n\r\n")
        if leaves:
            counts["client left in the middle"] += 1
            return
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), None)
        body = await (reader.readexactly(length) if length is not None else reader.readuntil(b"\r\n0\r\n\r\n"))
    except (OSError, asyncio.IncompleteReadError) as error:
        body = getattr(error, "partial", b"")
    finally:
        writer.close()
    if not head:
        counts["LOST: no answer"] += 1
    elif b" 200 " not in head.split(b"\r\n")[0]:
        counts["LOST: " + head.split(b"\r\n")[0].decode()] += 1
    elif not stream:
        counts["whole answers" if body.endswith(b"}") else "answers cut after the first byte"] += 1
    elif b"[DONE]" in body and b'"error"' not in body:
        counts["whole streams"] += 1
    elif b"[DONE]" in body:
        counts["LOST: error and [DONE] in one stream"] += 1
    else:
        counts["streams broken after the first byte"] += 1


async def client(fleet, rng, counts, options, end):
    while time.monotonic() < end:
        try:
            await asyncio.wait_for(ask(fleet, rng, counts), 60)
        except asyncio.TimeoutError:
            counts["LOST: no end within 60 s"] += 1
        await asyncio.sleep(rng.expovariate(options.rate / options.clients))


async def watch(fleet, samples):
    while True:
        samples.append((time.monotonic(), fleet.rss_mb()))
        await asyncio.sleep(5)


# ---- the verdict ----

def gauges_left(fleet):
    left = []
    for view in fleet.replicas():
        left += [f"{view['url']} {key} {view[key]}" for key in ("in_flight", "pending_prefill_tokens") if view[key] != 0]
    for line in fleet.get("/metrics").splitlines():
        name, _, value = line.rpartition(" ")
        most = GAUGES.get(name.split("{")[0])
        if most is not None and float(value) > most:
            left.append(line)
    return left


def judge(samples, counts, left):
    start, end = samples[0][0], samples[-1][0]
    third = (end - start) / 3
    middle = statistics.median(mb for at, mb in samples if start + third <= at < start + 2 * third)
    last = statistics.median(mb for at, mb in samples if at >= start + 2 * third)
    print(f"RSS MB: start {samples[0][1]:.1f}, middle third {middle:.1f}, last third {last:.1f}")
    faults = [f"{what}: {n}" for what, n in counts.items() if what.startswith("LOST")] + [f"gauge not zero: {line}" for line in left]
    if last > middle + RSS_SLACK_MB:
        faults.append("RSS grows")
    return faults


async def run(options):
    fleet = Fleet(options)
    counts, events, samples = collections.Counter(), collections.Counter(), []
    try:
        await asyncio.wait_for(all_up(fleet), 30)
        end = time.monotonic() + options.seconds
        chaos, watcher = asyncio.create_task(trouble(fleet, events)), asyncio.create_task(watch(fleet, samples))
        await asyncio.gather(*(client(fleet, random.Random(options.seed * 1000 + i), counts, options, end) for i in range(options.clients)))
        for task in (chaos, watcher):
            task.cancel()
        assert fleet.router.poll() is None, "the router has ended"
        for process in fleet.processes.values():
            process.send_signal(signal.SIGCONT)
        until = time.monotonic() + 15
        while (left := gauges_left(fleet)) and time.monotonic() < until:
            await asyncio.sleep(0.2)
    finally:
        fleet.stop()
    for what, n in sorted(counts.items()) + sorted(events.items()):
        print(f"{n:8} {what}")
    faults = judge(samples, counts + events, left)
    print("\n".join(faults) if faults else "all held")
    return 1 if faults else 0


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "backend":
        return asyncio.run(serve_backend(int(sys.argv[2])))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--rate", type=float, default=120, help="requests per second, all clients together")
    parser.add_argument("--kvring", default=os.environ.get("KVRING_BIN", str(ROOT / "build/release/deploy/kvring")))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    random.seed(options.seed)
    sys.exit(asyncio.run(run(options)))


if __name__ == "__main__":
    main()
