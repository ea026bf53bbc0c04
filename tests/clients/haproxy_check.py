"""HAProxy before the server: each form of its check finds it up, a server that is not there down, and a stream passes."""
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

url = urllib.parse.urlparse(sys.argv[1])
CHECKS = {
    "plain": "option httpchk",  # OPTIONS / HTTP/1.0
    "path": "option httpchk GET /ready",
    "head": "option httpchk HEAD /health",
    "host": "option httpchk\n    http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost",
    "unhealthy": "option httpchk GET /nowhere",
}


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def states(control):
    """Of each backend's server, as HAProxy has it; a check that has not ended is no state."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(control))
        client.sendall(b"show stat\n")
        text = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    names = text.splitlines()[0].lstrip("# ").split(",")
    rows = [dict(zip(names, line.split(","))) for line in text.splitlines()[1:] if line]
    return {row["pxname"]: row["status"] for row in rows if row["svname"] == "weft" and row["check_status"].startswith("L7")}


with tempfile.TemporaryDirectory() as folder:
    port, control, config = free_port(), pathlib.Path(folder, "control"), pathlib.Path(folder, "haproxy.cfg")
    backends = "".join(f"backend {name}\n    {check}\n    server weft {url.hostname}:{url.port} check inter 200ms fall 1\n"
                       for name, check in CHECKS.items())
    config.write_text(f"global\n    stats socket {control} mode 600\ndefaults\n    mode http\n    timeout connect 5s\n"
                      f"    timeout client 60s\n    timeout server 60s\n"
                      f"frontend front\n    bind 127.0.0.1:{port}\n    default_backend plain\n{backends}")
    proxy = subprocess.Popen(["haproxy", "-db", "-q", "-f", config])
    try:
        expected = {name: "DOWN" if name == "unhealthy" else "UP" for name in CHECKS}
        found = {}
        for _ in range(100):
            time.sleep(0.1)
            found = states(control) if control.exists() else {}
            if found == expected:
                break
        assert found == expected, found
        body = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, "stream": True}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.read().decode().rstrip().endswith("data: [DONE]")
        assert states(control) == expected
    finally:
        proxy.terminate()
        proxy.wait()
print("HAProxy: well")
