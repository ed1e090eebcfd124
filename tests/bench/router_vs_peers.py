#!/usr/bin/env python3
"""The router beside nginx (and other routers that are installed) in front of mock backends: one table with figure, bar, PASS or FAIL.

  tests/bench/router_vs_peers.sh PEERS_FOLDER [--kvring FILE] [--with sglang:cache_aware …] [--only NAME,…] [--out FOLDER] [--list]

PEERS_FOLDER has peers.py, the mock backend and the load client; they are built into --out. Every measurement is one command of peers.py, all
routers interleaved in one run; what it found stays in --out, so a run can be done in pieces (--only), and the table always shows all that is
there. Costs are ratios to nginx of the same run with one thread of ours; hit rate and balance are medians of three seeds. Ratios hold on a busy
machine only as far as the load is even: measure with nothing beside. Exit code 1: a bar was missed or is not measured yet.
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_HEADER = ["--no-session"]
OURS = "kvring:cache-aware"
NGINX = "nginx:rr"

# name -> arguments of peers.py
RUNS = {
    "base": ["replay", "--scenario", "base"],
    "base-no-header": ["replay", "--scenario", "base", *NO_HEADER],
    "tight": ["replay", "--scenario", "tight"],
    "tight-no-header": ["replay", "--scenario", "tight", *NO_HEADER],
    "hot": ["replay", "--scenario", "hot", *NO_HEADER],
    "base-slots": ["replay", "--scenario", "base", "--slots", "1", *NO_HEADER],
    "hot-slots": ["replay", "--scenario", "hot", "--slots", "1", *NO_HEADER],
    "untuned": ["replay", "--scenario", "base", "--backends", "6", "--sessions", "150", "--turns", "8", "--group", "30", "--system-tokens", "700",
                "--user-tokens", "220", "--assistant-tokens", "160", "--capacity", "8000", "--slots", "2", *NO_HEADER],
    "kill": ["replay", "--scenario", "kill", *NO_HEADER],
    "add": ["replay", "--scenario", "add", "--late-percent", "30", *NO_HEADER],
    "add-not": ["replay", "--scenario", "base", "--late-percent", "30", *NO_HEADER],
    "freeze": ["replay", "--scenario", "freeze", "--seeds", "1", *NO_HEADER],
    "midstream": ["replay", "--scenario", "midstream", "--seeds", "1"],
    "cost-2k": ["perf", "--sizes", "2048"],
    "cost-32k": ["perf", "--sizes", "32768", "--conns", "64"],
    "stream": ["perf", "--sizes", "2048", "--conns", "1", "--stream"],
    "memory": ["memory"],
}
# nginx hashes the session header: where one is sent, it is worth a look beside.
BESIDE = {name: ["nginx:hash"] for name in ("base", "tight")}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("--kvring", default=str(ROOT / "build/release/deploy/kvring"))
    parser.add_argument("--with", dest="others", nargs="+", default=[], help="further routers of peers.py, installed into --out")
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("router-vs-peers"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rounds", default="5")
    parser.add_argument("--list", action="store_true", help="only name the measurements")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name and name not in RUNS]
    if unknown:
        parser.error(f"no such measurement: {', '.join(unknown)} (there are {', '.join(RUNS)})")
    return options


def measure(options, name):
    command = [sys.executable, str(options.peers / "peers.py"), *RUNS[name], "--kvring", options.kvring, "--args", "kvring=--threads 1"]
    if command[2] == "replay" and "--seeds" not in command:
        command += ["--seeds", options.seeds]
    if command[2] == "perf":
        command += ["--rounds", options.rounds]
    beside = [NGINX] if command[2] == "perf" else BESIDE.get(name, [])
    routers = [OURS, *beside, *options.others]
    file = (options.out / f"{name}.json").resolve()
    subprocess.run([*command, "--routers", *routers, "--json", str(file)], check=True,
                   env={**os.environ, "PEERS_OUT": str(options.out.resolve())})


class Report:
    """Rows of the table. A row whose measurement is not there yet is shown as missing and counts as missed."""

    def __init__(self, folder):
        self.folder, self.rows, self.missed = folder, [], 0

    def load(self, name):
        file = self.folder / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def add(self, what, figure, beside, bar, good):
        self.missed += not good
        self.rows.append((what, figure, beside, bar, "PASS" if good else "FAIL"))

    def missing(self, what, bar):
        self.add(what, "not measured", "", bar, False)

    def replay(self, name, what, bar, judge, figure):
        data = self.load(name)
        if data is None:
            return self.missing(what, bar)
        by_name = {row["router"]: row for row in data["rows"]}
        others = "; ".join(f"{router} {figure(row)}" for router, row in by_name.items() if router != OURS)
        self.add(what, figure(by_name[OURS]), others, bar, judge(by_name[OURS]))

    def ratio(self, name, cell, what, key, bar, good, unit):
        """Ours over nginx's."""
        data = self.load(name)
        if data is None:
            return self.missing(what, bar)
        found = next(c for c in data["cells"] if c["cell"].startswith(cell))
        rows = {row["router"]: row for row in found["rows"]}
        value = rows[OURS][key] / rows[NGINX][key]
        others = "; ".join(f"{router} {row[key]:,.1f}" for router, row in rows.items() if router not in (OURS, "direct"))
        self.add(what, f"{rows[OURS][key]:,.1f} {unit}: {value:.2f} ×", others, bar, good(value))

    def print(self):
        print("| what | kvring | beside it | bar | |\n|---|---|---|---|---|")
        for row in self.rows:
            print("| " + " | ".join(row) + " |")
        print(f"\n{len(self.rows) - self.missed} of {len(self.rows)} bars held; {datetime.date.today()}, {os.cpu_count()} CPUs.")


def hit(row):
    return f"{row['hit']:.4f} @ {row['max_over_mean']:.2f}"


def hit_p99(row):
    return f"{hit(row)}, p99 {row['p99_ms']:.0f} ms"


def even(least, row):
    return row["hit"] >= least and row["max_over_mean"] <= 1.15


def report(folder):
    r = Report(folder)
    for name, what, least in (("base", "base, session header", .885), ("base-no-header", "base, no header", .885),
                              ("tight", "tight caches, session header", .865), ("tight-no-header", "tight caches, no header", .865),
                              ("hot", "hot prefix, no header", .883)):
        r.replay(name, f"{what}: hit @ max/mean", f"≥ {least} @ ≤ 1.15", lambda row, least=least: even(least, row), hit)
    r.replay("base-slots", "base, one prefill slot, no header", "≥ 0.885 @ ≤ 1.15", lambda row: even(.885, row), hit_p99)
    r.replay("hot-slots", "hot prefix, one prefill slot, no header", "≥ 0.880 @ ≤ 1.15, p99 ≤ 130 ms",
             lambda row: even(.880, row) and row["p99_ms"] <= 130, hit_p99)
    r.replay("untuned", "other shape, two prefill slots, no header", "within 0.01 of the bound @ ≤ 1.15",
             lambda row: even(row["bound"] - .01, row), lambda row: f"{hit_p99(row)} (bound {row['bound']:.4f})")
    r.replay("kill", "one backend killed", "0 errors, slowest < 120 ms, hit ≥ 0.885",
             lambda row: row["errors"] == 0 and row["max_ms"] < 120 and row["hit"] >= .885,
             lambda row: f"{row['errors']} errors, slowest {row['max_ms']:.0f} ms, hit {row['hit']:.4f}")
    without = r.load("add-not")
    least = without["rows"][0]["hit"] - .01 if without else 1
    r.replay("add", "ninth backend added: share of fair, hit", f"≥ 0.94, hit ≥ {least:.4f} (without it − 0.01)",
             lambda row: row["new_share"] >= .94 and row["hit"] >= least, lambda row: f"{row['new_share']:.2f}, {row['hit']:.4f}")
    r.replay("freeze", "one backend frozen: finished", "2,000 of 2,000", lambda row: row["finished"] == "2000/2000" and row["errors"] == 0,
             lambda row: f"{row['finished']}, {row['errors']} errors, slowest {row['max_ms']:,.0f} ms")
    r.replay("midstream", "backend killed in mid-stream", "error event, no [DONE]", lambda row: row["error_event"] == "yes" and row["done"] == "no",
             lambda row: f"error event {row['error_event']}, [DONE] {row['done']}")
    at_most = lambda bar: lambda value: value <= bar  # noqa: E731
    at_least = lambda bar: lambda value: value >= bar  # noqa: E731
    r.ratio("cost-2k", "2048 bytes, 1 ", "added p50, 1 connection, 2 KB", "added_p50_us", "≤ 1.2 × nginx", at_most(1.2), "µs")
    r.ratio("cost-2k", "2048 bytes, 64 ", "CPU per request, 2 KB", "cpu_us", "≤ 1.3 × nginx", at_most(1.3), "µs")
    r.ratio("cost-32k", "32768 bytes, 64 ", "CPU per request, 32 KB", "cpu_us", "≤ 1.6 × nginx", at_most(1.6), "µs")
    r.ratio("cost-2k", "2048 bytes, 64 ", "requests/s, 64 connections, 2 KB", "rps", "≥ 0.9 × nginx", at_least(.9), "/s")
    r.ratio("cost-32k", "32768 bytes, 64 ", "requests/s, 64 connections, 32 KB", "rps", "≥ 0.8 × nginx", at_least(.8), "/s")
    r.ratio("stream", "stream of", "added time to first byte of a stream", "added_ttft_p50_us", "≤ nginx", at_most(1), "µs")
    r.ratio("stream", "burst", "CPU per relayed chunk", "cpu_us_per_chunk", "≤ 1.5 × nginx", at_most(1.5), "µs")
    r.replay("memory", "memory per distinct 32 KB prompt", "≤ 8 KB", lambda row: row["kb_per_prompt"] <= 8,
             lambda row: f"{row['kb_per_prompt']:.1f} KB")
    r.print()
    return r.missed


def main():
    options = arguments()
    if options.list:
        return print("\n".join(RUNS))
    options.out.mkdir(parents=True, exist_ok=True)
    for name in filter(None, options.only.split(",")):
        measure(options, name)
    sys.exit(1 if report(options.out) else 0)


if __name__ == "__main__":
    main()
