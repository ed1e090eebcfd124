"""kvring audit over request logs as applications write them: each injected fault is named, at its place."""
import base64
import gzip
import json
import random
import subprocess

import pytest

from fleet import BIN

TOOLS = [{"type": "function", "function": {"name": name, "description": f"{name}: what the shop needs for its {name} desk, by order and by customer.",
                                           "parameters": {"type": "object", "properties": {"order": {"type": "string"}, "limit": {"type": "integer"}}}}}
         for name in ["search", "refund", "track", "escalate", "invoice"]]


def handbook(sentences, start=0):
    return "".join(f"Section {i} says that item {i * 37 % 101} may be returned within {10 + i % 20} days if the seal is whole.\n" for i in range(start, start + sentences))


def audit(*arguments, code=0):
    done = subprocess.run([BIN, "audit", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done


def report(*arguments, code=0):
    return json.loads(audit(*arguments, "--json", code=code).stdout)


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def chat(system, user, **fields):
    return {"model": "m", "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}], **fields}


def questions(n):
    rng = random.Random(4)
    words = "parcel lamp shoe jacket seal broken late return refund paid twice colour size blue order missing box".split()
    return [" ".join(rng.choice(words) for _ in range(8)) + "?" for _ in range(n)]


BOOK = "You are the desk of a hardware shop.\n" + handbook(40)
ASKED = questions(12)
RNG = random.Random(7)
DOCS = [f"Document: {handbook(5, 50 * k)}" for k in range(4)]


def value_in_front(before, values):
    return [chat(before + value + "\n" + BOOK, q) for value, q in zip(values, ASKED)], (before, "system")


def tools_in_order():
    return [{**chat(BOOK, q), "tools": RNG.sample(TOOLS, len(TOOLS))} for q in ASKED]


def profile(i):
    keys = ["plan", "since", "city", "points"]
    return json.dumps({k: f"value of {k}" for k in keys[i % 4:] + keys[:i % 4]})


def long_chat_cut():
    history = [{"role": "system", "content": "You are the desk of a hardware shop."}]
    for turn in range(24):
        history.append({"role": "user", "content": f"{turn}: {questions(30)[turn]} " + handbook(2, 40 * turn)})
        yield {"model": "m", "messages": history[:1] + history[1:][-9:]}
        history.append({"role": "assistant", "content": f"Answer {turn}. " + handbook(1, 40 * turn + 20)})


FAULTS = {
    "timestamp": value_in_front("Current time: ", [f"2026-08-21 14:{i:02}:{i * 7 % 60:02}" for i in range(12)]),
    "date": value_in_front("Today is ", [f"2026-08-{i + 1:02}" for i in range(12)]),
    "uuid": value_in_front("Request id: ", [f"{RNG.getrandbits(32):08x}-{RNG.getrandbits(16):04x}-4{i:03x}-a123-{RNG.getrandbits(48):012x}" for i in range(12)]),
    "counter": value_in_front("This is request number ", [str(i + 1) for i in range(12)]),
    "random nonce": value_in_front("nonce=", [f"k{RNG.getrandbits(60):015x}" for i in range(12)]),
    "user's own value in the system prompt": value_in_front("You are talking to ", ["Maria Gonzalez", "Tom Baker", "Aiko Tanaka", "Priya Shah", "Lars Holm", "Ana Silva"] * 2),
    "tools reordered": (tools_in_order(), (None, "tools")),
    "tools added or removed": ([{**chat(BOOK, q), "tools": TOOLS[:2 + i % 4]} for i, q in enumerate(ASKED)], (None, "tools")),
    "JSON key order": ([chat("Profile: " + profile(i) + "\n" + BOOK, q) for i, q in enumerate(ASKED)], ("Profile: ", "system")),
    "whitespace": ([chat("Rules:" + " " * (i % 7) + BOOK, q) for i, q in enumerate(ASKED)], ("Rules:", "system")),
    "variable-first arrangement": ([{"model": "m", "messages": [{"role": "user", "content": q + "\n" + BOOK}]} for q in ASKED], ("", "user")),
    "documents reordered": ([{"model": "m", "messages": [{"role": "user", "content": "Context:\n" + "\n".join(RNG.sample(DOCS, 4)) + q}]} for q in ASKED], (None, "user")),
    "history truncation": (list(long_chat_cut()), (None, "user")),
}


@pytest.mark.parametrize("name", FAULTS)
def test_injected_fault_is_named_at_its_place(tmp_path, name):
    records, (before, part) = FAULTS[name]
    out = report(write(tmp_path / "log.jsonl", records))
    assert {f["class"] for f in out["findings"]} == {name}, out["findings"]
    finding = out["findings"][0]
    assert finding["part"] == part
    if before is not None:
        role = len(part) + 1
        assert finding["begin"] == role + len(before)
        assert finding["offset_in_part"] == len(before)
    assert finding["what_if_hit_rate"] > out["ceiling_hit_rate"] + 0.05
    assert out["total"]["residual"] == 0 and sum(row["tokens"] for row in out["causes"]) == out["total"]["prompt_tokens"]


def test_all_faults_in_one_log(tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for i, (records, _) in enumerate(FAULTS.values()):
        write(folder / f"{i:02}.jsonl", records)
    out = report(folder)
    assert {f["class"] for f in out["findings"]} >= set(FAULTS), set(FAULTS) - {f["class"] for f in out["findings"]}


def test_clean_traffic_has_no_finding(tmp_path):
    records = []
    for s in range(6):
        history = [{"role": "system", "content": BOOK}]
        for turn in range(6):
            history.append({"role": "user", "content": f"{questions(60)[6 * s + turn]} I bought it on 2026-0{s + 1}-1{turn}."})
            records.append({"model": "m", "messages": list(history), "tools": TOOLS})
            history.append({"role": "assistant", "content": f"That is in section {s * 6 + turn}."})
    RNG.shuffle(records)
    records.sort(key=lambda r: len(r["messages"]))
    out = report(write(tmp_path / "log.jsonl", records))
    assert out["findings"] == [] and out["ceiling_hit_rate"] > 0.9
    assert "no finding" in audit(tmp_path / "log.jsonl").stdout


def test_clock_in_a_growing_chat_PFX_18(tmp_path):
    """Ten turns, system prompt of 2,000 tokens with the time at token 40; four bytes a token, as usage says."""
    def turns(clock):
        head = "You are the desk of a shop. " + "Be brief, be kind. " * 8
        head = head[:160 - len("system: ")] + " "
        system = head + clock(0) + " " + handbook(90)
        history = []
        for turn in range(10):
            history.append({"role": "user", "content": f"Turn {turn}. " + handbook(200, 1000 * turn)})
            prompt = [{"role": "system", "content": head + clock(turn) + system[len(head) + len(clock(0)):]}] + history
            size = sum(len(m["role"]) + len(m["content"]) + 2 for m in prompt)
            yield {"request": {"model": "m", "messages": list(prompt)}, "response": {"usage": {"prompt_tokens": size // 4, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 32 if turn else 0}}}}
            history.append({"role": "assistant", "content": f"Answer {turn}."})

    out = report(write(tmp_path / "time.jsonl", turns(lambda turn: f"{9 + turn}:{17 * turn % 60:02}:{7 * turn % 60:02}".rjust(8, "0"))))
    assert [f["class"] for f in out["findings"]] == ["timestamp"]
    finding = out["findings"][0]
    assert (finding["begin"], finding["end"]) == (160, 168) and finding["requests"] == 9
    assert finding["least_offset"] // 4 // 16 * 16 == finding["most_offset"] // 4 // 16 * 16 == 32  # tokens found, in every turn
    assert out["total"]["ceiling_tokens"] == 9 * 32 == out["total"]["cached_tokens"]
    first, last = [json.loads(line)["response"]["usage"]["prompt_tokens"] for line in (tmp_path / "time.jsonl").read_text().splitlines()][:2][0], None
    assert finding["lost_tokens"] > 0.8 * (out["total"]["prompt_tokens"] - first)
    out = report(write(tmp_path / "date.jsonl", turns(lambda turn: "2026-11-30")))
    assert out["findings"] == []


def test_header_not_rendered_again_PFX_17(tmp_path):
    """As token ids: 71,324 tokens, of which 71,320 are in turn 2; blocks of 16."""
    rng = random.Random(1)
    front = [rng.randrange(1000, 50000) for _ in range(71320)]
    header = [7, 8, 9, 10]
    second = front + [11, 12, 13, 14, 15, 16] + header
    out = report(write(tmp_path / "ids.jsonl", [{"model": "m", "prompt": front + header}, {"model": "m", "prompt": second}]), "--alarm-after", 1)
    [finding] = out["findings"]
    assert finding["class"] == "generation prompt / reasoning header" and finding["token"] == 71320
    rows = {row["cause"]: row["tokens"] for row in out["causes"]}
    assert out["total"]["ceiling_tokens"] == 71312
    assert rows["partial block, last token, too short"] == 8 and rows["diverged early"] == 4


def test_cache_that_gives_nothing_is_an_alarm_OBS_02(tmp_path):
    usage = {"prompt_tokens": 1100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}
    log = write(tmp_path / "log.jsonl", [{"request": chat(BOOK, q), "response": {"usage": usage}} for q in ASKED])
    out = report(log, "--check", "ceiling>=80%", code=1)
    assert out["alarm"].startswith("expected 89.3 %") and out["alarm"].endswith("measured 0.0 %")
    assert "alarm: expected" in audit(log).stdout


def test_metric_that_disagrees_with_usage_OBS_02(tmp_path):
    usage = {"prompt_tokens": 1100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1072}}
    log = write(tmp_path / "log.jsonl", [{"request": chat(BOOK, q), "response": {"usage": usage}} for q in ASKED])
    page = tmp_path / "metrics"
    page.write_text("# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{model_name=\"m\"} 0.0\n")
    assert f"metric disagrees with usage (0 vs {12 * 1072})" in audit(log, "--metrics", page, code=1).stderr
    page.write_text(f"vllm:prefix_cache_hits_total{{model_name=\"m\"}} {12 * 1072}\n")
    audit(log, "--metrics", page, "--check", "ceiling>=80%")


def test_usage_of_either_convention_USG_03(tmp_path):
    records = [{"request": chat("a" * 500, "x"), "response": {"usage": {"prompt_tokens": 6074, "completion_tokens": 285, "prompt_tokens_details": {"cached_tokens": 3456}}}},
               {"request": {"model": "c", "system": "b" * 500, "messages": [{"role": "user", "content": "x"}]},
                "response": {"usage": {"input_tokens": 88, "cache_read_input_tokens": 120269, "cache_creation_input_tokens": 21002, "output_tokens": 4156}}}]
    groups = {g["name"]: g for g in report(write(tmp_path / "log.jsonl", records))["by_model"]}
    assert groups["m"]["prompt_tokens"] == 6074 and round(groups["m"]["achieved_hit_rate"], 3) == 0.569
    assert groups["c"]["prompt_tokens"] == 88 + 120269 + 21002 and round(groups["c"]["achieved_hit_rate"], 3) == 0.851


def test_spellings_of_a_record_are_one(tmp_path):
    body = chat(BOOK, "Hello?")
    answer = {"id": "x", "usage": {"prompt_tokens": 1000, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 992}}}
    stream = "data: {\"choices\":[]}\n\ndata: " + json.dumps(answer) + "\n\ndata: [DONE]\n\n"
    forms = [{**body, "usage": answer["usage"]},
             {"request": body, "response": answer, "timestamp": "2026-08-21T14:32:07Z", "tenant": "t"},
             {"req": {"body": body}, "resp": {"body": answer}, "ts": 1787322727},
             {"request_body": json.dumps(body), "response_body": json.dumps(answer)},
             {"body": body, "response": stream},
             {"params": body, "output": [{"choices": []}, answer]},
             {"startedDateTime": "2026-08-21T14:32:07.1Z", "request": {"method": "POST", "postData": {"text": json.dumps(body)}}, "response": {"status": 200, "content": {"text": json.dumps(answer)}}},
             {"request": {"postData": {"text": json.dumps(body)}}, "response": {"status": 200, "content": {"encoding": "base64", "text": base64.b64encode(stream.encode()).decode()}}}]
    out = report(write(tmp_path / "log.jsonl", forms))
    assert out["total"]["requests"] == len(forms) == out["total"]["reporting_requests"]
    assert out["total"]["cached_tokens"] == 992 * len(forms) and out["estimated_requests"] == 0
    assert out["total"]["ceiling_tokens"] == 992 * (len(forms) - 1)
    assert [g["name"] for g in out["by_hour"]] == ["2026-08-21 14h"] and out["by_tenant"][0]["name"] == "t"


def test_containers_hold_the_same(tmp_path):
    records = [{"request": chat(BOOK, q), "timestamp": "2026-08-21T14:32:07Z"} for q in ASKED]
    plain = write(tmp_path / "a.jsonl", records)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "a.json").write_text(json.dumps(records, indent=1))
    (tmp_path / "b.json").write_text("\n".join(json.dumps(r, indent=2) for r in records))
    entries = [{"startedDateTime": "2026-08-21T14:32:07Z", "request": {"postData": {"text": json.dumps(r["request"])}}, "response": {"status": 200}} for r in records]
    (tmp_path / "a.har").write_text(json.dumps({"log": {"version": "1.2", "pages": [{"id": "p"}], "entries": entries}}, indent=1))
    (tmp_path / "b.har").write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    sums = [report(tmp_path / name)["total"] for name in ["a.jsonl", "a.jsonl.gz", "a.json", "b.json", "a.har", "b.har"]]
    assert all(s == sums[0] for s in sums) and sums[0]["requests"] == 12


def test_bad_records_are_counted_and_named(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps(chat(BOOK, "x")) + "\n{\"messages\": [\n\nnot json\n" + json.dumps({"url": "/health"}) + "\n" + json.dumps({"messages": [{"content": "x"}]}) + "\n")
    done = audit(log, "--json")
    out = json.loads(done.stdout)
    assert out["bad_records"] == 3 and out["skipped"] == 1 and out["total"]["requests"] == 1
    for line in (2, 4, 6):
        assert f"{log}:{line}: " in done.stderr
    assert "messages[0].role" in done.stderr
    (tmp_path / "cut.json").write_text("[" + json.dumps(chat(BOOK, "x")) + ",\n{\"messages\":")
    assert "cut.json:2" in audit(tmp_path / "cut.json").stderr
    assert "no such file" in audit(tmp_path / "none.jsonl", code=1).stderr
    (tmp_path / "empty.jsonl").write_text("")
    assert "no request" in audit(tmp_path / "empty.jsonl", code=1).stderr


def test_check_page_and_text(tmp_path):
    secret = ["Zebra-9431-kk", "Xylem-2210-qq", "Quark-7765-zz", "Vixen-1188-ww"] * 3
    log = write(tmp_path / "log.jsonl", [chat(f"nonce {s}\n" + BOOK, q) for s, q in zip(secret, ASKED)])
    audit(log, "--check", "ceiling>=1%")
    assert "ceiling is" in audit(log, "--check", "ceiling >= 99%", code=1).stderr
    assert "no cached tokens" in audit(log, "--check", "achieved>=50%", code=1).stderr
    for wrong in ["ceiling", "hits>=5%", "ceiling=>5%", "ceiling>=500%"]:
        audit(log, "--check", wrong, code=2)
    audit(log, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<title>kvring audit" in page and "src=" not in page and "http" not in page
    text = audit(log).stdout
    assert "Zebra" not in text + page and "Quark" not in text + page
    assert any(s in audit(log, "--show-text").stdout for s in secret)
