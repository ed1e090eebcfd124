"""kvring sim as a person and as a script use it; its page in a real browser."""
import json
import os
import shutil
import struct
import subprocess
import zlib

from fleet import BIN

CHAT = "chat:sessions=30,turns=5"


def run(*arguments, code=0):
    done = subprocess.run([BIN, "sim", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stdout + done.stderr


def test_run_says_what_scripts_read():
    arguments = ["run", "--workload", CHAT, "--replicas", "4", "--kv-tokens", "50000", "--policy", "cache-aware,round-robin", "--seed", "3"]
    both = json.loads(run(*arguments, "--json"))
    assert 0 < both["ceiling_hit_rate"] < 1
    for policy in ("cache-aware", "round-robin"):
        figures = both["policies"][policy]
        assert 0 < figures["hit_rate"] <= both["ceiling_hit_rate"]
        assert set(figures["ttft_s"]) == {"mean", "p50", "p99"} and figures["max_over_mean"] >= 1
    assert both["policies"]["cache-aware"]["hit_rate"] > both["policies"]["round-robin"]["hit_rate"]
    again = json.loads(run(*arguments, "--json", "--jobs", "2"))
    assert [p["trace_hash"] for p in again["policies"].values()] == [p["trace_hash"] for p in both["policies"].values()]
    lines = run(*arguments, "--csv").splitlines()
    assert lines[0].startswith("policy,hit_rate,") and len(lines) == 3
    assert run(*arguments).startswith("seed 3\n")


def test_compare_pairs_the_seeds():
    out = json.loads(run("compare", "--workload", CHAT, "--replicas", "4", "--policy", "cache-aware,round-robin", "--seeds", "3", "--seed", "1",
                         "--fidelity", "queue", "--json"))
    gap = out["differences"]["round-robin"]["hit_rate"]
    means = [out["policies"][policy]["hit_rate"]["mean"] for policy in ("round-robin", "cache-aware")]
    assert abs(gap["mean"] - (means[0] - means[1])) < 1e-9
    assert gap["mean"] + gap["half_width"] < 0


def test_capacity_finds_the_least_fleet():
    def needed(slo, code=0):
        return run("capacity", "--workload", "chat:sessions=100,turns=5,rate=200,pause=0.1", "--policy", "round-robin", "--slo", slo, "--most-replicas", "16", "--seed", "1",
                   "--json", code=code)
    loose = json.loads(needed("ttft_p99=1s"))["policies"]["round-robin"]
    tight = json.loads(needed("ttft_p99=150ms"))["policies"]["round-robin"]
    assert loose["kept"] and tight["kept"] and loose["replicas"] < tight["replicas"]
    assert tight["ttft_p99_s"] <= 0.15
    assert not json.loads(needed("ttft_p99=1ms", code=1))["policies"]["round-robin"]["kept"]


def test_load_is_fitted():
    trace = ["--workload", "prefixes:requests=500", "--seed", "1", "--replicas", "2", "--fidelity", "queue", "--json"]
    slow = json.loads(run("run", *trace, "--rate", "5"))["policies"]["cache-aware"]
    fast = json.loads(run("run", *trace, "--rate", "50"))["policies"]["cache-aware"]
    assert 8 < slow["makespan_s"] / fast["makespan_s"] < 11
    low, high = (json.loads(run("run", *trace, "--utilisation", share))["policies"]["cache-aware"]["ttft_s"]["mean"] for share in ("0.3", "1.1"))
    assert high > 1.5 * low


def test_faults_are_played():
    arguments = ["run", "--workload", "prefixes:requests=300", "--policy", "round-robin", "--replicas", "4", "--routers", "2", "--seed", "1", "--json"]
    calm = json.loads(run(*arguments))["policies"]["round-robin"]
    killed = json.loads(run(*arguments, "--fault", "kill:at=5,replica=1,lasts=10"))["policies"]["round-robin"]
    assert calm["retries"] == 0 and calm["failed"] == 0
    assert killed["retries"] + killed["failed"] > 0 and killed["refused"] == 0
    assert "0 of 5 seeds found something" in run("swarm", "--seed", "1", "--seeds", "5")
    assert "fault melt is unknown" in run(*arguments, "--fault", "melt:at=5", code=2)


def test_what_is_wrong_is_named(tmp_path):
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\n{"timestamp": 5, "input_length": 1}\n')
    assert f"{trace}:2: output_length" in run("run", "--trace", str(trace), code=2)
    assert "unknown; known: chat" in run("run", "--workload", "chess", code=2)
    assert "--policy best is unknown" in run("run", "--workload", CHAT, "--policy", "best", code=2)
    assert "--slo ttft_p99=2" in run("capacity", "--workload", CHAT, "--slo", "ttft_p99=2", code=2)
    assert "cannot be written" in run("run", "--workload", CHAT, "--html", str(tmp_path / "no" / "page.html"), code=1)


def pixels(path):
    """Colours of an 8-bit PNG's pixels, without alpha."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and kind in (2, 6)
    at, packed = 8, b""
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at:at + 8])
        packed += data[at + 8:at + 8 + length] if name == b"IDAT" else b""
        at += length + 12
    raw, size = zlib.decompress(packed), 3 if kind == 2 else 4
    above, colours = bytearray(width * size), set()
    for row in range(height):
        start = row * (width * size + 1)
        line, mode = bytearray(raw[start + 1:start + 1 + width * size]), raw[start]
        for i in range(len(line)):
            left, up, corner = (line[i - size] if i >= size else 0), above[i], (above[i - size] if i >= size else 0)
            nearest = min((abs(up - corner), 0, left), (abs(left - corner), 1, up), (abs(left + up - 2 * corner), 2, corner))[2]
            line[i] = (line[i] + (0, left, up, (left + up) // 2, nearest)[mode]) & 255
        colours.update(bytes(line[i:i + 3]) for i in range(0, len(line), size))
        above = line
    return colours


def test_page_in_a_browser(tmp_path):
    page, picture = tmp_path / "page.html", tmp_path / "page.png"
    run("run", "--workload", CHAT, "--replicas", "4", "--kv-tokens", "50000", "--policy", "cache-aware,round-robin", "--seed", "3", "--html", str(page))
    text = page.read_text()
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "the page fetches nothing"
    assert "<script" not in text
    for title in ("Hit rate", "Time to first token", "Load of each replica", "cache-aware", "ceiling", "Hit rate so far"):
        assert title in text
    browser = shutil.which("chromium")
    assert browser, "deploy/setup.sh tests installs chromium"
    subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=900,1600",
                    f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True, timeout=120)
    seen = pixels(picture)
    for colour in ("1668c7", "d9572b"):  # the first two of svg_chart.cc: bars and lines are drawn
        assert bytes.fromhex(colour) in seen
    assert len(seen) > 50  # shades of the loads
