#!/usr/bin/env python3
"""What the host tier gains: conversations that do not fit the KV pool are visited in turn, without a tier, with one in memory and with one
in a file; time to the first token of a prompt that was pushed out, and the share of its tokens that were not computed again.

  tests/bench/host_tier.py [--kvring FILE] [--model FILE] [--threads 2]
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
import urllib.request

from engine_vs_peers import free_port

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONVERSATIONS, TOKENS, ROUNDS, KV_TOKENS = 8, 1000, 3, 4096


def ask(port, prompt):
    body = {"model": "default", "prompt": prompt, "max_tokens": 1, "temperature": 0}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    start = time.perf_counter()
    with urllib.request.urlopen(request, timeout=300) as answer:
        usage = json.load(answer)["usage"]
    return 1e3 * (time.perf_counter() - start), usage["prompt_tokens_details"]["cached_tokens"]


def measure(name, options, args):
    port = free_port()
    command = [args.kvring, "replica", "--model", args.model, "--name", "default", "--listen", f"127.0.0.1:{port}", "--grpc-listen", "127.0.0.1:0",
               "--threads", str(args.threads), "--kv-tokens", str(KV_TOKENS), *options]
    replica = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
                break
            except OSError:
                assert replica.poll() is None, "the replica ended"
        rng = random.Random(5)
        prompts = [[rng.randrange(100, 40000) for _ in range(TOKENS)] for _ in range(CONVERSATIONS)]
        first = [ask(port, prompt) for prompt in prompts]
        later = [ask(port, prompt) for _ in range(ROUNDS) for prompt in prompts]
    finally:
        replica.terminate()
        replica.wait()
    ttft = statistics.median(ms for ms, _ in later)
    reused = sum(cached for _, cached in later) / (TOKENS * len(later))
    print(f"{name:10} {statistics.median(ms for ms, _ in first):10.1f} {ttft:10.1f} {100 * reused:9.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvring", default=os.path.join(ROOT, "build/release/deploy/kvring"))
    parser.add_argument("--model", default=os.environ.get("KVRING_MODEL", os.path.expanduser("~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf")))
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print(f"{CONVERSATIONS} prompts of {TOKENS} tokens in turn, a pool of {KV_TOKENS}; medians")
    print(f"{'tier':10} {'first, ms':>10} {'again, ms':>10} {'reused':>11}")
    measure("none", [], args)
    measure("memory", ["--host-tier", "1GiB"], args)
    with tempfile.TemporaryDirectory() as folder:
        measure("file", ["--host-tier", "1GiB", "--host-tier-dir", folder], args)


if __name__ == "__main__":
    main()
