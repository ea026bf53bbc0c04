#!/usr/bin/env python3
"""Bodies that are as large as they may be, one after another without end, beside ordinary requests of another key: none of
those may be refused, and their slowest first token takes at most three times as long as without the flood.

    tests/serve/flood.py MODEL.gguf [--build build/release] [--requests 75] [--ratio 3] [--no-keys]
"""
import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CONNECTIONS = 4         # of the flood, each of which sends the next body once it has an answer
BYTES = 8_300_000       # just below --max-body


def tiny_messages(count, content="x"):
    return {"messages": [{"role": "user" if i % 2 == 0 else "assistant", "content": content} for i in range(count)]}


FLOODS = {  # name -> path, body
    "spaces": lambda: ("/v1/completions", {"prompt": " " * BYTES}),
    "words": lambda: ("/v1/completions", {"prompt": "so many words " * (BYTES // 14)}),
    "ids": lambda: ("/v1/completions", {"prompt": [7] * (BYTES // 3)}),
    "messages": lambda: ("/v1/chat/completions", tiny_messages(80_000)),
    "long message": lambda: ("/v1/chat/completions", tiny_messages(1, " <|im_end|>" * (BYTES // 12))),
    "nested": lambda: ("/v1/completions", {"prompt": "x", "user": [[]] * (BYTES // 5)}),
    "tokenize": lambda: ("/tokenize", {"prompt": "so many words " * (3_900_000 // 14)}),
    "tokenize spaces": lambda: ("/tokenize", {"prompt": " " * 3_900_000}),
    "tokenize messages": lambda: ("/tokenize", tiny_messages(80_000)),
}


def request_bytes(path, body, key):
    text = json.dumps(body).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Length: {len(text)}\r\n\r\n")
    return head.encode() + text


def read_reply(connection):
    """Status, seconds to the first event or byte of a body; reads to the end of the reply."""
    begin, held = time.monotonic(), b""
    first = None
    while True:
        part = connection.recv(1 << 20)
        if not part:
            return (int(held.split(b" ", 2)[1]) if held.startswith(b"HTTP/") else 0), first
        held += part
        head, blank, rest = held.partition(b"\r\n\r\n")
        if not blank:
            continue
        if rest and first is None:
            first = time.monotonic() - begin
        status = int(head.split(b" ", 2)[1])
        low = head.lower()
        if b"content-length:" in low:
            if len(rest) >= int(low.split(b"content-length:")[1].split(b"\r\n")[0]):
                return status, first
        elif rest.endswith(b"0\r\n\r\n"):
            return status, first


class Flood:
    def __init__(self, port, name, key):
        path, body = FLOODS[name]()
        self.bytes, self.port, self.ending, self.statuses = request_bytes(path, body, key), port, False, {}
        self.threads = [threading.Thread(target=self.run) for _ in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.ending:
            status = 0
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
                    connection.settimeout(120)
                    try:
                        connection.sendall(self.bytes)
                    except OSError:
                        pass  # refused before it was all there: the reply says so
                    status, _ = read_reply(connection)
            except OSError:
                pass
            self.statuses[status] = self.statuses.get(status, 0) + 1

    def end(self):
        self.ending = True
        for thread in self.threads:
            thread.join()
        return self.statuses


def ordinary(port, count, key):
    """Statuses, and the slowest first token, of `count` requests one after another in two streams."""
    statuses, slowest = [], [0.0]

    def stream(share):
        for i in range(share):
            body = {"prompt": f"Number {i} of those that wait: once upon a time", "max_tokens": 4, "temperature": 0, "stream": True}
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.settimeout(120)
                connection.sendall(request_bytes("/v1/completions", body, key))
                status, first = read_reply(connection)
            statuses.append(status)
            slowest[0] = max(slowest[0], first or 0.0)
    threads = [threading.Thread(target=stream, args=(share,)) for share in (count // 2, count - count // 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses, slowest[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    parser.add_argument("--requests", default=75, type=int)
    parser.add_argument("--ratio", default=3.0, type=float, help="of the slowest first tokens; 0: only refusals count")
    parser.add_argument("--no-keys", action="store_true", help="all clients are one to the server")
    parser.add_argument("--flood", action="append", choices=FLOODS, help="only this one")
    options = parser.parse_args()
    wrong = 0
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("ordinary\nflooding\n")
        keys.flush()
        command = [options.build / "bin/weft", "serve", options.model, "--port", "0"]
        server = subprocess.Popen(command if options.no_keys else [*command, "--api-key-file", keys.name], stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        try:
            port = int(json.loads(server.stdout.readline())["url"].rsplit(":", 1)[1])
            ordinary(port, 10, "ordinary")
            for name in options.flood or FLOODS:
                _, alone = ordinary(port, options.requests, "ordinary")
                flood = Flood(port, name, "flooding")
                time.sleep(1)
                statuses, beside = ordinary(port, options.requests, "ordinary")
                answered = flood.end()
                refused = sum(status != 200 for status in statuses)
                bad = refused > 0 or (options.ratio > 0 and beside > options.ratio * alone)
                wrong += bad
                print(f"{name}: {refused} of {len(statuses)} refused, slowest first token {beside:.3f} s, alone {alone:.3f} s, "
                      f"ratio {beside / alone:.2f}; the flood got {answered}{' WRONG' if bad else ''}", flush=True)
        finally:
            server.terminate()
            server.wait()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
