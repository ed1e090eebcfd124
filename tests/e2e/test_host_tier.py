"""A replica's host tier: prompts that were pushed out of the pool come back from memory, or from a file that outlives a SIGKILL, and a
damaged file costs time, never a wrong answer."""
import subprocess

import pytest
from fleet import BIN, Replica, free_ports, get, post

KV_TOKENS = "512"
PROMPTS = [" ".join(f"{word}{i}" for i in range(110)) for word in ("alpha", "beta", "gamma")]


def start(*options):
    return Replica(*free_ports(2), None, "--kv-tokens", KV_TOKENS, *options).wait_ready()


def ask(replica, prompt):
    answer = post(replica.url + "/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0}).json
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def counter(replica, name):
    return next(float(line.split()[1]) for line in get(replica.url + "/metrics").body.decode().splitlines() if line.startswith(name + " "))


@pytest.fixture(scope="module")
def cold():
    """The answers of a replica without a tier, which has forgotten each prompt by the time it comes again."""
    replica = start()
    try:
        answers = [ask(replica, prompt)[0] for prompt in PROMPTS]
        assert ask(replica, PROMPTS[0])[1] < 64
        return answers
    finally:
        replica.stop()


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_evicted_prompts_come_back(kind, cold, tmp_path):
    replica = start("--host-tier", "64MiB", *(["--host-tier-dir", str(tmp_path)] if kind == "file" else []))
    try:
        assert [ask(replica, prompt)[0] for prompt in PROMPTS] == cold
        again = [ask(replica, prompt) for prompt in PROMPTS]
        assert [text for text, _ in again] == cold
        assert all(cached > 256 for _, cached in again), again
        assert counter(replica, "kvring_replica_host_tier_hit_tokens_total") > 3 * 256
    finally:
        replica.stop()


def test_killed_replica_finds_its_file_again_and_a_damaged_file_is_no_wrong_answer(cold, tmp_path):
    options = ("--host-tier", "64MiB", "--host-tier-dir", str(tmp_path))
    replica = start(*options)
    for prompt in PROMPTS:
        ask(replica, prompt)
    replica.kill()
    replica.stop()

    replica = start(*options)
    text, cached = ask(replica, PROMPTS[0])
    assert text == cold[0] and cached > 256
    replica.kill()
    replica.stop()

    blocks = tmp_path / "kv-blocks"
    data = bytearray(blocks.read_bytes())
    for at in range(4096 + 4096 + 100, len(data), 1 << 16):  # each payload of several hundred KiB has some
        data[at] ^= 1
    blocks.write_bytes(data)
    replica = start(*options)
    try:
        assert [ask(replica, prompt)[0] for prompt in PROMPTS] == cold
        assert counter(replica, "kvring_replica_host_tier_damaged_blocks_total") > 0
    finally:
        replica.stop()


def test_two_replicas_on_one_file_and_nonsense_are_refused(tmp_path):
    options = ("--host-tier", "64MiB", "--host-tier-dir", str(tmp_path))
    replica = start(*options)
    try:
        run = [BIN, "replica", "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"]
        second = subprocess.run([*run, *options], capture_output=True, text=True, timeout=60)
        assert second.returncode != 0 and "kv-blocks: in use by another process" in second.stderr
        tiny = subprocess.run([*run, "--host-tier", "1KiB"], capture_output=True, text=True, timeout=60)
        assert tiny.returncode != 0 and "host tier: 1024 bytes are less than one block" in tiny.stderr
        lost = subprocess.run([*run, "--host-tier-dir", str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert lost.returncode != 0 and "--host-tier" in lost.stderr
    finally:
        replica.stop()
