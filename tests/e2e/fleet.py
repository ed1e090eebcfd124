"""A fleet of real kvring processes on free ports of this machine, for tests. Nothing here waits by time: every wait is for a condition."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

BIN = os.environ["KVRING_BIN"]
READY_S = 60


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def until(condition, what, seconds=READY_S):
    """Asks `condition` again and again until it is true; fails loudly when it never is."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"still not so after {seconds} s: {what}"
        with contextlib.suppress(Exception):
            socket.create_connection(("127.0.0.1", 1), timeout=0.02).close()  # a short pause: nobody listens there


class Http:
    """Status, headers and body of one request; never raises for an HTTP status."""

    def __init__(self, method, url, body=None, headers=None, timeout=60):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method, headers=headers or {})
        try:
            answer = urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            self.status = answer.status
            self.headers = answer.headers
            self.body = answer.read()

    @property
    def json(self):
        return json.loads(self.body)


def get(url, **kwargs):
    return Http("GET", url, **kwargs)


def post(url, body, **kwargs):
    return Http("POST", url, body, **kwargs)


class Process:
    def __init__(self, *arguments):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log", delete=False)
        self.arguments = [BIN, *arguments]
        self.process = subprocess.Popen(self.arguments, stdout=self.log, stderr=subprocess.STDOUT)

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.poll() is None

    def output(self):
        with open(self.log.name) as log:
            return log.read()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()
        os.unlink(self.log.name)


class Replica(Process):
    def __init__(self, http_port, grpc_port, router_grpc=None, *more):
        self.url = f"http://127.0.0.1:{http_port}"
        self.grpc = f"127.0.0.1:{grpc_port}"
        self.ports = (http_port, grpc_port)
        arguments = ["replica", "--listen", f"127.0.0.1:{http_port}", "--grpc-listen", self.grpc, "--threads", "1", "--drain-seconds", "1"]
        if router_grpc:
            arguments += ["--router", router_grpc]
        super().__init__(*arguments, *more)

    def wait_ready(self):
        def ready():
            assert self.alive(), self.output()
            with contextlib.suppress(OSError):
                return get(self.url + "/readyz").status == 200

        until(ready, f"{self.url}/readyz")
        return self


class Router(Process):
    def __init__(self, policy="cache-aware", backends=(), *more):
        http_port, grpc_port = free_ports(2)
        self.url = f"http://127.0.0.1:{http_port}"
        self.grpc = f"127.0.0.1:{grpc_port}"
        arguments = ["router", "--listen", f"127.0.0.1:{http_port}", "--grpc-listen", self.grpc, "--policy", policy, "--drain-seconds", "1"]
        for backend in backends:
            arguments += ["--backend", backend]
        super().__init__(*arguments, *more)

    def replicas(self):
        return get(self.url + "/admin/v1/replicas").json["replicas"]

    def wait_up(self, count):
        def up():
            assert self.alive(), self.output()
            with contextlib.suppress(OSError):
                return sum(r["state"] == "up" for r in self.replicas()) == count

        until(up, f"{count} replicas up at {self.url}")
        return self


class Fleet:
    """One router and some replicas. wire: how the router reaches them: "register" (they register themselves), "grpc" or "http"."""

    def __init__(self, replicas=4, policy="cache-aware", wire="register", replica_options=(), router_options=()):
        ports = free_ports(2 * replicas)
        pairs = list(zip(ports[::2], ports[1::2]))
        backends = {"register": [], "grpc": [f"grpc://127.0.0.1:{g}" for _, g in pairs], "http": [f"http://127.0.0.1:{h}" for h, _ in pairs]}[wire]
        self.replica_options = replica_options
        self.router = Router(policy, backends, *router_options)
        self.register_at = self.router.grpc if wire == "register" else None
        self.replicas = [Replica(h, g, self.register_at, *replica_options) for h, g in pairs]
        try:
            for replica in self.replicas:
                replica.wait_ready()
            self.router.wait_up(replicas)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self):
        return self.router.url

    @property
    def grpc(self):
        return self.router.grpc

    def restart(self, index):
        """Starts a killed replica again on its ports."""
        old = self.replicas[index]
        self.replicas[index] = Replica(*old.ports, self.register_at, *self.replica_options).wait_ready()
        return self.replicas[index]

    def stop(self):
        for process in [self.router, *self.replicas]:
            process.stop()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stop()


def chat_body(messages, **more):
    return {"messages": messages, "temperature": 0, "max_tokens": 8, **more}


class Conversation:
    """A chat that grows turn by turn over HTTP. Remembers what each turn reported."""

    def __init__(self, url, session=None, system="", salt=""):
        self.url = url
        self.headers = {"Content-Type": "application/json", **({"X-Session-Id": session} if session else {})}
        self.messages = [{"role": "system", "content": system}] if system else []
        self.salt = salt
        self.turns = []

    def ask(self, text, **more):
        self.messages.append({"role": "user", "content": text})
        if self.salt:
            more["cache_salt"] = self.salt
        answer = post(self.url + "/v1/chat/completions", chat_body(self.messages, **more), headers=self.headers)
        assert answer.status == 200, answer.body
        message = answer.json["choices"][0]["message"]
        self.messages.append({"role": "assistant", "content": message["content"]})
        usage = answer.json["usage"]
        self.turns.append({"prompt": usage["prompt_tokens"], "cached": usage["prompt_tokens_details"]["cached_tokens"],
                           "completion": usage["completion_tokens"], "replica": answer.headers["x-kvring-replica"],
                           "reason": answer.headers["x-kvring-reason"], "id": answer.headers["x-request-id"],
                           "predicted": int(answer.headers["x-kvring-predicted-cached-tokens"])})
        return message["content"]

    def reusable(self, block=16):
        """Whole-block tokens that each follow-up turn could have found: what the turn before computed."""
        total = 0
        for before, turn in zip(self.turns, self.turns[1:]):
            total += min(before["prompt"] + before["completion"] - 1, turn["prompt"] - 1) // block * block
        return total

    def cached_after_first(self):
        return sum(turn["cached"] for turn in self.turns[1:])
