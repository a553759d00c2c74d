"""Use a server as people do who leave early: aborts at random moments, then many short requests, and what it costs.

Run from the root of the repository, with the extra serve: `python tools/soak.py --record FILE`. It starts `specrun serve` with
the embedded model, breaks 100 answers off at random moments, compares the next answer with that of a fresh process, then
sends 1,000 requests and looks at the server's memory on the way. POSIX only.
"""

import argparse
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ABORTS = 100
REQUESTS = 1000
PROMPTS = (
    "Tell a story.",
    "Write a function.",
    "Sam has 3 apples.",
    "Why?",
    "Count to ten, then back again, slowly.",
)


def main() -> None:
    """Soak; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--method", default="dominotree")
    options = parser.parse_args()
    command = [sys.executable, "-m", "specrun_cli", "serve", "--method", options.method, "--port", "0"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=True, text=True)
    server, port = started(command)
    rng = random.Random(0)
    try:
        began = time.monotonic()
        for number in range(ABORTS):
            leave_early(port, number, rng)
        question = {"messages": [turn(PROMPTS[0])], "temperature": 0.8, "seed": 7, "max_tokens": 48}
        after_aborts = ask(port, question)
        aborts_took = time.monotonic() - began
        memory, statuses = [], set()
        for number in range(REQUESTS):
            statuses.add(ask(port, small(number, rng))["finish_reason"])
            if number % 100 == 99:
                memory.append(resident(server.pid))
        after_requests = ask(port, question)
    finally:
        server.terminate()
        server.wait()
    fresh_server, fresh_port = started(command)
    try:
        fresh = ask(fresh_port, question)
    finally:
        fresh_server.terminate()
        fresh_server.wait()
    record = {
        "command": f"python tools/soak.py --method {options.method}",
        "commit": head.stdout.strip(),
        "method": options.method,
        "aborts": ABORTS,
        "seconds_of_aborts": round(aborts_took, 1),
        "requests": REQUESTS,
        "finish_reasons": sorted(statuses),
        "resident_mib_every_100": memory,
        "text_after_aborts_is_a_fresh_process_s": after_aborts["text"] == fresh["text"],
        "text_after_requests_is_a_fresh_process_s": after_requests["text"] == fresh["text"],
    }
    print(json.dumps(record, indent=2))
    if options.record is not None:
        options.record.parent.mkdir(parents=True, exist_ok=True)
        options.record.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def started(command: list[str]) -> tuple[subprocess.Popen[str], int]:
    """The server, once it says where it listens and answers there."""
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        found = re.search(r"http://[^:]+:(\d+)/v1", line)
        if found:
            port = int(found.group(1))
            break
    else:
        raise SystemExit("the server ended before it listened")
    # the socket takes connections before the server does; a request simply waits
    ask(port, {"messages": [turn("Hi")], "max_tokens": 1})
    return server, port


def turn(text: str) -> dict[str, str]:
    """One turn of a user."""
    return {"role": "user", "content": text}


def small(number: int, rng: random.Random) -> dict[str, Any]:
    """A short request whose lengths and settings vary."""
    return {
        "messages": [turn(rng.choice(PROMPTS))],
        "max_tokens": rng.randint(1, 12),
        "temperature": rng.choice([0, 0.7, 1]),
        "seed": number,
    }


def ask(port: int, body: dict[str, Any]) -> dict[str, Any]:
    """Text and finish reason of one answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    read = json.loads(answer.read())
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"status {answer.status}: {read}")
    choice = read["choices"][0]
    return {"text": choice["message"]["content"], "finish_reason": choice["finish_reason"]}


def leave_early(port: int, number: int, rng: random.Random) -> None:
    """Send a long request and close the connection at a random moment."""
    body = {
        "messages": [turn(rng.choice(PROMPTS))],
        "max_tokens": 200,
        "stream": number % 2 == 0,
        "seed": number,
    }
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + data)
        time.sleep(rng.random() * 0.3)


def resident(pid: int) -> float:
    """Memory of a process in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


if __name__ == "__main__":
    main()
