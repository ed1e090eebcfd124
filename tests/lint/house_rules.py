#!/usr/bin/env python3
"""House rules as a test: which room may include which, what pure rooms never touch, and a few words that do not belong.

Usage: house_rules.py ROOT     prints each violation as file:line: what; exits 1 if there is any.
"""
import os
import re
import subprocess
import sys

SOURCE = (".h", ".cc", ".cu")

# Room: what it may include beside itself and the standard library. The longest matching folder counts.
SHELL = ["common", "common/runtime", "common/net", "common/openai", "common/telemetry", "proto"]
ROUTER_CORE = ["router", "router/fleet", "router/policy", "router/ledger"]
GUARD = ["router/gateway/router_guard.h"]
TABLE = {
    "common": [],
    "common/runtime": ["common"],
    "common/openai": ["common"],
    "common/net": ["common", "common/runtime", "common/openai"],
    "common/telemetry": ["common", "common/runtime", "common/net", "proto"],
    "router/fleet": ["common"],
    "router/policy": ["common", "router/fleet"],
    "router/ledger": ["common", "router/fleet", "router/policy"],
    "router": ["common"] + ROUTER_CORE,
    "router/gateway": SHELL + ROUTER_CORE,
    "router/discovery": SHELL + ROUTER_CORE + GUARD,
    "router/admin": SHELL + ROUTER_CORE + GUARD,
    "router/billing": SHELL + ROUTER_CORE,
    "router/extproc": SHELL + ROUTER_CORE + GUARD,
    "router/events": SHELL + ROUTER_CORE + GUARD,
    "replica/kv": ["common"],
    "replica/engine": ["common", "replica/kv"],
    "replica/model": ["common", "common/runtime", "kernels", "replica/engine", "replica/kv"],
    "replica/server": SHELL + ["replica/kv", "replica/engine", "replica/model", "kernels"],
    "kernels": ["common"],
    "sim": ["common", "replica/kv", "replica/engine"] + ROUTER_CORE,
    "sim/io": ["common", "common/runtime", "common/net", "sim", "replica/kv", "replica/engine"] + ROUTER_CORE,
    "deploy": ["*"],
    "tests": ["*"],
}
PURE = ["common", "router", "router/fleet", "router/policy", "router/ledger", "replica/kv", "replica/engine", "sim"]

# What a pure room never reaches: clocks, entropy, threads, sockets, files, the environment, protobuf, CUDA.
IMPURE = [
    (r"steady_clock|system_clock|high_resolution_clock|gettimeofday|clock_gettime|\btime\(nullptr\)", "a clock"),
    (r"random_device|getrandom|\bstd::rand\b|\bsrand\b", "entropy"),
    (r"#include <(thread|mutex|shared_mutex|condition_variable|future|stop_token)>|std::thread", "threads"),
    (r"#include <(sys/socket|netinet|arpa|poll|sys/epoll|unistd|fcntl)|boost/asio", "sockets or the system"),
    (r"#include <(fstream|iostream|filesystem)>|\bfopen\b", "files or streams"),
    (r"\bgetenv\b", "the environment"),
    (r"\.pb\.h|grpcpp|google/protobuf", "protobuf"),
    (r"cuda_runtime|cublas", "CUDA"),
    (r"absl/synchronization|absl::Mutex", "locks"),
]
# common/metrics is shared between threads by nature: a lock around its registry is its one exception.
IMPURE_ALLOWED = {("common/metrics.h", "locks"), ("common/metrics.cc", "locks")}

WORDS = [
    (r"\b(TODO|FIXME|XXX)\b", "an unfinished note"),
    (r"\bsleep_for\b|\busleep\b|time\.sleep", "a sleep; wait on a condition"),
    (r"using namespace std\b", "using namespace std"),
    (r"\bcatch \(\.\.\.\)", "a catch-all"),
    (r"\.detach\(\)", "a detached thread"),
]
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "proto", "router", "replica", "kernels", "common", "sim",
             "tests", "deploy"}


def room_of(path):
    folder = os.path.dirname(path)
    while folder and folder not in TABLE:
        folder = os.path.dirname(folder)
    return folder


def check_include(path, room, target):
    allowed = TABLE[room]
    if "*" in allowed or target in allowed:
        return None
    generated = target.startswith("kvring/v1/")
    target_room = "proto" if generated else room_of(target)
    if target_room in ("", room) or target_room in allowed:
        return None
    return f"{room} may not include {target}"


def check_file(root, path):
    room = room_of(path)
    with open(os.path.join(root, path), encoding="utf-8") as source:
        lines = source.readlines()
    for number, line in enumerate(lines, 1):
        include = re.match(r'\s*#include "([^"]+)"', line)
        if include and room:
            wrong = check_include(path, room, include.group(1))
            if wrong:
                yield f"{path}:{number}: {wrong}"
        if room in PURE:
            for pattern, what in IMPURE:
                if re.search(pattern, line) and (path, what) not in IMPURE_ALLOWED:
                    yield f"{path}:{number}: the pure room {room} reaches {what}"
        for pattern, what in WORDS:
            if re.search(pattern, line):
                yield f"{path}:{number}: {what}"


def files_of(root):
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(["git", "-C", root, "ls-files"], check=True, capture_output=True, text=True).stdout.split("\n")
        return [path for path in listed if path and os.path.exists(os.path.join(root, path))]
    return [os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names]


def violations(root):
    files = files_of(root)
    for path in files:
        top = path.split("/")[0]
        if not top.startswith(".") and top not in TOP_LEVEL:
            yield f"{path}: {top} is not a room of the house"
        if path.endswith(SOURCE):
            yield from check_file(root, path)
    for room in ["proto", "router", "replica", "kernels", "common", "sim", "deploy", "tests"]:
        if any(path.startswith(room + "/") for path in files) and f"{room}/README.md" not in files:
            yield f"{room}/README.md: the room has no card"


def main():
    found = list(violations(sys.argv[1]))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
