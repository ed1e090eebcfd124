"""The commands as a person and as a script use them."""
import json
import os
import subprocess
import xml.etree.ElementTree

import pytest

from fleet import BIN, post

MODEL = os.environ.get("KVRING_MODEL", os.path.expanduser("~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf"))


def run(*arguments, stdin=None, code=0):
    done = subprocess.run([BIN, *arguments], capture_output=True, text=True, input=stdin, timeout=60)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def size(**flags):
    arguments = [item for key, value in flags.items() for item in (f"--{key.replace('_', '-')}", str(value))]
    return json.loads(run("size", *arguments, "--json"))


def test_size_is_the_formula():
    # The essay's table: Llama-2-7B 4,096; Llama-3-8B 8,192; Mistral-7B 32,768, with window 4,096, and its MHA variant.
    assert size(layers=32, kv_heads=32, head_dim=128, seq=4096)["kv_bytes"] == 2 << 30
    assert size(layers=32, kv_heads=8, head_dim=128, seq=8192)["kv_bytes"] == 1 << 30
    assert size(layers=32, kv_heads=8, head_dim=128, seq=32768)["kv_bytes"] == 4 << 30
    assert size(layers=32, kv_heads=8, head_dim=128, seq=32768, window=4096)["kv_bytes"] == 1 << 29
    assert size(layers=32, kv_heads=32, head_dim=128, seq=32768)["kv_bytes"] == 16 << 30
    assert size(layers=12, kv_heads=12, head_dim=64, seq=1, dtype_bytes=4)["kv_bytes_per_token"] == 73728
    assert size(layers=32, kv_heads=8, head_dim=128, seq=8192, batch=3)["kv_bytes"] == 3 << 30


def test_size_from_files(tmp_path, fleet):
    config = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "max_position_embeddings": 32768, "sliding_window": 4096}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert json.loads(run("size", str(path), "--json"))["kv_bytes"] == 1 << 29
    path.write_text(json.dumps({**config, "sliding_window": None}))
    out = json.loads(run("size", str(path), "--memory", "80GB", "--weights", "16GB", "--json"))
    assert out["kv_bytes"] == 4 << 30 and out["conversations"] == 64_000_000_000 // (4 << 30)
    path.write_text("{}")
    assert "num_hidden_layers" in subprocess.run([BIN, "size", str(path)], capture_output=True, text=True).stderr


def test_size_by_kv_type_is_what_a_replica_holds(fleet):
    # 30 layers, 3 KV heads of 64: int8 has a scale of 4 bytes per key and value of a head.
    for kv_type, per_token in [("f32", 46080), ("bf16", 23040), ("int8", 2 * 30 * 3 * (64 + 4))]:
        out = json.loads(run("size", MODEL, "--kv-type", kv_type, "--seq", "100", "--json"))
        assert out["kv_bytes_per_token"] == per_token and out["kv_bytes"] == 100 * per_token
    assert "scale" in run("size", MODEL, "--kv-type", "int8")
    assert subprocess.run([BIN, "size", MODEL, "--kv-type", "int4"], capture_output=True).returncode == 2


def test_usage_errors_exit_2():
    for arguments in [[], ["nonsense"], ["size", "--layers", "-1"], ["size"], ["router", "--policy", "magic"], ["router", "--backend", "ftp://x:1"], ["replica", "--block", "0"]]:
        assert subprocess.run([BIN, *arguments], capture_output=True).returncode == 2, arguments
    assert subprocess.run([BIN, "--help"], capture_output=True).returncode == 0


def test_every_command_has_help_with_examples():
    for command in ["audit", "up", "router", "replica", "chat", "complete", "stats", "why", "size", "lab measured", "lab timing"]:
        assert "kvring " + command in run(*command.split(), "--help").split("Examples:")[1]


def test_chat_complete_stats_why(fleet):
    done = json.loads(run("complete", "The capital of France is", "--router", fleet.grpc, "--max-tokens", "4", "--temperature", "0", "--json"))
    assert done["text"].startswith(" Paris") and done["completion_tokens"] == 4
    lines = run("chat", "--router", fleet.grpc, "--max-tokens", "6", "--temperature", "0", "--json", stdin="Hello\nAnd again\n").strip().split("\n")
    turns = [json.loads(line) for line in lines]
    assert len(turns) == 2 and turns[1]["prompt_tokens"] > turns[0]["prompt_tokens"] and turns[1]["replica"] == turns[0]["replica"]
    assert turns[1]["cached_tokens"] >= turns[0]["prompt_tokens"] // 16 * 16
    stats = json.loads(run("stats", "--router", fleet.grpc, "--json"))
    assert stats["requests"] >= 3 and len(stats["replicas"]) == 2 and 0 < stats["hit_rate"] < 1
    assert "replica" in run("stats", "--router", fleet.grpc)
    why = json.loads(run("why", turns[1]["request_id"], "--router", fleet.grpc, "--json"))
    assert why["cached_tokens"] == turns[1]["cached_tokens"]
    assert "candidates" in run("why", turns[1]["request_id"], "--router", fleet.grpc)
    run("why", "no-such-request", "--router", fleet.grpc, code=1)


def test_router_check_names_what_is_wrong(tmp_path):
    path = tmp_path / "router.yaml"
    good = "listen: 127.0.0.1:8080\npolicy: session-ring\nbackends:\n  - url: http://127.0.0.1:9001\n    kv_tokens: 1000\nhealth:\n  interval_ms: 500\n"
    path.write_text(good)
    assert "valid" in run("router", "--config", str(path), "--check")
    for wrong, words in [("polciy: x\n", ["router.yaml:1", "polciy"]), ("policy: magic\n", ["policy", "magic"]), ("limits:\n  max_body_bytes: -5\n", [":2", "limits.max_body_bytes"]),
                         ("backends:\n  - url: ftp://x\n", ["backends[0].url"]), ("backends: 5\n", ["backends", "list"]), ("listen: [\n", ["router.yaml"]),
                         ("health:\n  interval_ms: soon\n", ["health.interval_ms"])]:
        path.write_text(wrong)
        done = subprocess.run([BIN, "router", "--config", str(path), "--check"], capture_output=True, text=True)
        assert done.returncode == 2
        for word in words:
            assert word in done.stderr, (wrong, done.stderr)


def test_sim_run(tmp_path):
    workload = ["--workload", "chat:sessions=30,turns=4", "--replicas", "4", "--kv-tokens", "100000", "--seed", "7"]
    out = json.loads(run("sim", "run", *workload, "--policy", "cache-aware,round-robin", "--json"))
    assert out["seed"] == 7 and set(out["policies"]) == {"cache-aware", "round-robin"}
    ours, rr = out["policies"]["cache-aware"], out["policies"]["round-robin"]
    assert out["ceiling_hit_rate"] >= ours["hit_rate"] > rr["hit_rate"]
    assert 0 < ours["ttft_s"]["p50"] <= ours["ttft_s"]["p99"] and ours["max_over_mean"] >= 1
    again = json.loads(run("sim", "run", *workload, "--policy", "cache-aware", "--json"))
    assert again["policies"]["cache-aware"]["trace_hash"] == ours["trace_hash"]
    assert run("sim", "run", *workload).startswith("seed 7\n")
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 10, "output_length": 1}\n{"timestamp": 0}\n')
    for arguments, words in [
        (["--trace", str(trace)], "trace.jsonl:2: input_length"),
        (["--workload", "chat:turns=x"], "turns=x"),
        (["--workload", "chat", "--policy", "magic"], "--policy magic is unknown"),
        (["--workload", "chat", "--preset", "tpu"], "--preset tpu"),
        ([], "one of --trace and --workload"),
    ]:
        done = subprocess.run([BIN, "sim", "run", *arguments], capture_output=True, text=True)
        assert done.returncode == 2 and words in done.stderr, (arguments, done.stderr)


def test_size_models_are_the_published_figures():
    rows = {row["model"]: row for row in json.loads(run("size", "--models", "--memory", "80GiB", "--weights", "16GiB", "--json"))["models"]}
    assert {name: (row["kv_bytes"], row["conversations"]) for name, row in rows.items()} == {
        "Llama-2-7B": (2 << 30, 32), "Llama-3-8B": (1 << 30, 64), "Mistral-7B-v0.3": (4 << 30, 16),
        "Mistral-7B-v0.1 (window 4096)": (1 << 29, 128), "Mistral-7B with multi-head": (16 << 30, 4)}
    assert rows["Llama-3-8B"]["kv_bytes_per_token"] == 128 << 10
    text = run("size", "--models")
    assert "512.00 MiB" in text and "conversations" not in text


def test_size_plot_is_an_svg_that_goes_flat_at_the_window(tmp_path):
    path = tmp_path / "size.svg"
    run("size", "--layers", "32", "--kv-heads", "8", "--head-dim", "128", "--seq", "32768", "--window", "4096", "--svg", str(path))
    root = xml.etree.ElementTree.parse(path).getroot()
    points = [point.split(",") for point in root.find("{http://www.w3.org/2000/svg}polyline").get("points").split()]
    assert len(points) == 3 and points[1][1] == points[2][1] != points[0][1]
    assert float(points[1][0]) - float(points[0][0]) == pytest.approx((float(points[2][0]) - float(points[0][0])) / 8, abs=0.2)
    missing = subprocess.run([BIN, "size", "--layers", "1", "--kv-heads", "1", "--head-dim", "1", "--seq", "1", "--svg", str(tmp_path / "no" / "x")],
                             capture_output=True, text=True)
    assert missing.returncode == 1 and "--svg" in missing.stderr


def test_lab_measured_is_the_formula_and_flat_behind_a_window():
    out = json.loads(run("lab", "measured", "--model", MODEL, "--lengths", "16,32,48,64", "--json"))
    assert out["exact"] and [c["held_bytes"] for c in out["checkpoints"]] == [tokens * 46080 for tokens in (16, 32, 48, 64)]
    windowed = json.loads(run("lab", "measured", "--model", MODEL, "--dtype", "bf16", "--window", "32", "--lengths", "32,64,96,128", "--json"))
    held = [c["held_bytes"] for c in windowed["checkpoints"]]
    assert windowed["kv_bytes_per_token"] == 23040 and held[0] == 32 * 23040
    assert max(held) <= (32 + 2 * 16) * 23040 and held[-1] == held[-2]


def test_lab_timing_has_a_row_per_length():
    out = json.loads(run("lab", "timing", "--model", MODEL, "--dtype", "bf16", "--lengths", "2,1", "--json"))
    assert [row["new_tokens"] for row in out["rows"]] == [1, 2] and out["prompt_tokens"] == 64
    assert all(row["cached_s"] > 0 and row["uncached_s"] > 0 for row in out["rows"])
    assert out["rows"][1]["speedup"] == pytest.approx(out["rows"][1]["uncached_s"] / out["rows"][1]["cached_s"])
    assert "cached_vs_previous" in out["rows"][1] and "cached_vs_previous" not in out["rows"][0]
    bad = subprocess.run([BIN, "lab", "timing", "--model", MODEL, "--lengths", "9000"], capture_output=True, text=True)
    assert bad.returncode == 2 and "--lengths" in bad.stderr and "8192" in bad.stderr
    assert subprocess.run([BIN, "lab", "timing", "--model", "/no/such.gguf"], capture_output=True).returncode == 1


def test_drain_and_back(fleet):
    name = fleet.router.replicas()[0]["id"]
    assert json.loads(run("drain", name, "--router", fleet.grpc, "--json"))["state"] == "draining"
    assert next(r["state"] for r in fleet.router.replicas() if r["id"] == name) == "draining"
    assert json.loads(run("drain", name, "--undo", "--router", fleet.grpc, "--json"))["state"] == "up"
    run("drain", "r-nobody", "--router", fleet.grpc, code=1)
