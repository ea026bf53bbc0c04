#!/usr/bin/env python3
"""Clients that people have, against `weft serve` as it was built: OpenAI's library, litellm, langchain-openai, llm,
pydantic-ai, a browser on the page, HAProxy, slowhttptest.

    tests/clients/run.py [--build build/release] [--only openai|litellm|langchain|llm|pydantic_ai|page|haproxy|slow]

The libraries come from PyPI into a virtual environment of the user's cache folder; chromium, chromedriver, haproxy and
slowhttptest are Debian's (apt-get install chromium chromium-driver haproxy slowhttptest).
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENT = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "weft/clients/venv"
PACKAGES = ("openai==3.54.0", "litellm==1.110.2", "langchain-openai==1.7.4", "langchain-core==1.8.3", "llm==0.36",
            "pydantic-ai-slim[openai]==2.68.0", "selenium==4.51.0")
LIBRARIES = ("openai", "litellm", "langchain", "llm", "pydantic_ai")
IGNORED = ["colour"]  # the one field that a client sends and no table of docs/http.md has


def python():
    """Of the environment, which is made where it is not there."""
    if not (ENVIRONMENT / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
    pip = [ENVIRONMENT / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True)
    return ENVIRONMENT / "bin/python"


def slow(url):
    """A thousand connections that send or read a byte now and then; the server answers beside them and after them."""
    for words in (["-H"], ["-B", "-t", "POST", "-f", "application/json"], ["-X", "-w", "1", "-y", "2", "-n", "5", "-z", "1"]):
        subprocess.run(["slowhttptest", "-c", "1000", "-r", "500", "-l", "8", *words, "-u", url + "/v1/completions"],
                       check=True, stdout=subprocess.DEVNULL)
        with urllib.request.urlopen(url + "/ready", timeout=5) as reply:
            assert reply.status == 200
    for _ in range(300):
        with urllib.request.urlopen(url + "/metrics", timeout=5) as reply:
            metrics = reply.read().decode()
        open_now = int(next(line for line in metrics.splitlines() if line.startswith("weft_connections ")).split()[1])
        if open_now <= 1:
            return
        time.sleep(0.1)
    raise AssertionError(f"{open_now} connections are left of slow clients")


def check_ignored(log, clients):
    """What clients send by themselves is known to the server; the field that it ignores is named once."""
    names = [line["field"] for line in log if line["event"] == "ignored_field"]
    assert names == (IGNORED if "openai" in clients else []), f"ignored fields: {names}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--only", choices=(*LIBRARIES, "page", "haproxy", "slow"))
    arguments = parser.parse_args()
    missing = [name for name in ("chromium", "chromedriver", "haproxy", "slowhttptest") if shutil.which(name) is None]
    if missing and arguments.only not in LIBRARIES:
        sys.exit(f"not installed: {' '.join(missing)} (apt-get install chromium chromium-driver haproxy slowhttptest)")
    model = subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    server = subprocess.Popen([arguments.build / "bin/weft", "serve", model, "--port", "0", "--header-time", "5",
                               "--body-time", "5", "--ctx", "8192", "--alias", "dummy", "--log-json"], stdout=subprocess.PIPE, text=True)
    try:
        url = json.loads(server.stdout.readline())["url"]
        log = []  # a thread reads on: the server never waits for it
        reader = threading.Thread(target=lambda: log.extend(json.loads(line) for line in server.stdout))
        reader.start()
        clients = [name for name in (*LIBRARIES, "page") if arguments.only in (None, name)]
        for name in clients:
            subprocess.run([python(), HERE / f"{name}_client.py", url], check=True)
        if arguments.only in (None, "haproxy"):
            subprocess.run([sys.executable, HERE / "haproxy_check.py", url], check=True)
        if arguments.only in (None, "slow"):
            slow(url)
            print("slow clients: well")
        assert server.poll() is None, "the server has ended"
    finally:
        server.terminate()
    assert server.wait(40) == 0, f"it ended with {server.returncode}"
    reader.join()
    check_ignored(log, clients)


if __name__ == "__main__":
    main()
