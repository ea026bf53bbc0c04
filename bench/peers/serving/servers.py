"""Servers that are measured: Weft's and llama.cpp's over HTTP, OpenVINO GenAI in process; and the load they are given."""
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import install
from contestants import Refused

START_LIMIT_S = 120
CONTEXT = 8192  # tokens of one answer with its prompt
PAGE = 16  # tokens; a block of a trace is a page


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a row asks of a server, whoever it is."""
    tokens: int = 131072  # of the cache of keys and values
    running: int = 64     # answers at once
    queued: int = 100000  # requests that wait
    weft: tuple = ()      # further arguments
    llama: tuple = ()     # llama-server's slots and caches, where not a cache of a whole context for each
    batched: int = 2048   # OpenVINO: tokens of a step


class Server:
    """A process that answers at `url` once it is ready; `ready_s` is how long that took."""

    def __init__(self, command, url=None):
        self.messages = tempfile.TemporaryFile("w+")
        started = time.perf_counter()
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE if url is None else self.messages,
                                        stderr=self.messages, text=True)
        self.url = url or self.first_line()
        while not self.answers("/health" if url else "/ready"):
            if self.process.poll() is not None or time.perf_counter() - started > START_LIMIT_S:
                raise Refused(f"{command[0]} did not get ready: {self.last_message()}")
            time.sleep(0.002)
        self.ready_s = time.perf_counter() - started

    def first_line(self):
        line = self.process.stdout.readline()
        if not line:
            raise Refused(f"it ended with {self.process.wait()}: {self.last_message()}")
        return json.loads(line)["url"]

    def last_message(self):
        self.messages.seek(0)
        return (self.messages.read().strip().splitlines() or ["no message"])[-1]

    def answers(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def metrics(self):
        """{name: value} of Weft's /metrics, histograms left out."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=10) as reply:
            lines = [line.split() for line in reply.read().decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines if "{" not in name}

    def pages_lost(self):
        """Of Weft, once nothing runs: pages that are neither free nor can be evicted."""
        for _ in range(100):
            metrics = self.metrics()
            if metrics["weft_requests_running"] + metrics["weft_requests_waiting"] == 0:
                return metrics["weft_pages"] - metrics["weft_pages_free"] - metrics["weft_pages_evictable"]
            time.sleep(0.1)
        raise Refused("requests of clients that left go on")

    def settle(self):
        """Waits until it takes no more memory: Weft has some backed ahead while it is idle."""
        before, now = 0, self.rss_kb()
        while now != before:
            time.sleep(0.2)
            before, now = now, self.rss_kb()

    def rss_kb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def stop(self):
        for _ in range(2):  # the second one ends Weft at once
            if self.process.poll() is None:
                self.process.terminate()
                time.sleep(0.05)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.messages.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


@functools.cache
def llama_server():
    return install.build_llama("llama-server")[0]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Machine:
    """Programs, the model and the CPUs that they run on; starts servers and plays loads."""

    def __init__(self, programs, model, threads, traces, cpus=(), llama=None, llama_settings=()):
        self.programs, self.model, self.threads, self.traces = pathlib.Path(programs), str(model), threads, traces
        self.cpus, self.llama_server, self.llama_settings = cpus, llama, llama_settings
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-serve-"))
        self.processes = []

    def close(self):
        self.end()
        shutil.rmtree(self.folder)

    def end(self):
        """Clients keep what came so far, servers end; whoever waits for them goes on."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)

    def started(self, process):
        self.processes = [other for other in self.processes if other.poll() is None] + [process]
        return process

    def weft(self, setup=Setup(), *more):
        return self.server([self.programs / "weft", "serve", self.model, "--port", 0, "--threads", self.threads, "--ctx", CONTEXT,
                       "--kv-tokens", setup.tokens, "--max-running", setup.running, "--max-queued", setup.queued,
                       "--max-queued-tokens", 1 << 30, "--queue-time", 36000, "--request-time", 36000, *setup.weft, *more])

    def server(self, command, url=None):
        server = Server(command, url)
        self.started(server.process)
        server.settle()
        return server

    def llama(self, setup=Setup()):
        """A cache for each slot: of one unified cache every token attends to all that it holds, several times as slow."""
        port = free_port()
        slots = setup.llama or ("-c", CONTEXT * setup.running, "-np", setup.running, "--no-kv-unified")
        return self.server([self.llama_server or llama_server(), "-m", self.model, "--host", "127.0.0.1", "--port", port,
                       "-t", self.threads, "-tb", self.threads, *slots, "-fa", "on", "-b", 2048, "-ub", 512,
                       *self.llama_settings], f"http://127.0.0.1:{port}")

    def start(self, contestant, setup=Setup()):
        if contestant == "llama-server":
            return self.llama(setup)
        return self.weft(setup, *{"Weft fast": ["--precision", "fast"], "Weft, no levels": ["--no-levels"]}.get(contestant, []))

    def trace(self, name):
        """A file of the traces' folder, as it lies there."""
        if self.traces is None:
            raise Refused("it plays a trace: give --traces DIR")
        path = pathlib.Path(self.traces) / f"{name}.gz"
        if not path.exists():
            raise Refused(f"{path} is not there")
        return path

    def prompts(self, name, lines):
        """A trace of requests that come together: (length, answer's length, blocks of 16 tokens)."""
        path = self.folder / name
        path.write_text("".join(json.dumps({"timestamp": 0, "input_length": length, "output_length": output, "hash_ids": blocks})
                                + "\n" for length, output, blocks in lines))
        return path

    def client(self, url, *arguments):
        """The process of a load, and the file that it leaves."""
        outcomes = self.folder / f"outcomes-{time.monotonic_ns()}"
        command = [self.programs / "weft", "bench", "serve", "--json", "--outcomes", outcomes, "--vocabulary", 49152,
                   *(["--url", url] if url else []), *arguments]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=sys.stderr)
        return self.started(process), outcomes

    def play(self, server, *arguments):
        process, outcomes = self.client(server.url, *arguments)
        if process.wait() != 0:
            raise Refused(f"weft bench serve ended with {process.returncode}")
        return read_outcomes(outcomes)

    def play_openvino(self, setup, *arguments):
        """The same requests at the same times, in a process that holds the pipeline."""
        give_up = arguments[arguments.index("--give-up") + 1] if "--give-up" in arguments else 0
        load, outcomes = self.folder / "load", self.folder / "outcomes-openvino"
        self.client(None, "--save", load, *arguments)[0].wait()
        command = [*install.python_contestant("openvino", "openvino-genai")[:1], install.HERE / "serving/openvino_player.py",
                   self.model, self.threads, setup.tokens, setup.running, setup.batched, load, outcomes, give_up]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused((done.stderr.strip().splitlines() or ["no message"])[-1])
        return read_outcomes(outcomes)

    def answer(self, contestant, setup, *arguments):
        """Outcomes of a load, by whomever."""
        if contestant == "OpenVINO GenAI":
            return self.play_openvino(setup, *arguments)
        with self.start(contestant, setup) as server:
            return self.play(server, *arguments)


def read_outcomes(path):
    """Outcomes by request; their times are seconds from the load's start, `start` is that in seconds since 1970."""
    first, *lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["start"] = first["start"]
    os.unlink(path)
    return lines
