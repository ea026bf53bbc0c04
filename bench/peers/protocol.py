"""What a contestant written in Python speaks on stdin and stdout; protocol.h, its twin, says how."""
import json
import os
import sys
import time


class Refused(Exception):
    """This contestant cannot measure the row; the message says why."""


def mean_seconds(operation, at_least_s=0.1):
    """Seconds of one operation; short ones are repeated, so that a reading lasts long enough to be timed."""
    start, runs = time.perf_counter(), 0
    while True:
        operation()
        runs += 1
        seconds = time.perf_counter() - start
        if seconds >= at_least_s:
            return seconds / runs


FACTS = {}  # of the row that is ready


def note_memory_of(operation):
    """Runs it, and notes how much memory it takes beside what is there already: its temporaries at their most."""
    def megabytes(name):
        return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name)) / 1024

    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak is what is there now
    before = megabytes("VmRSS:")
    operation()
    FACTS["extra_mb"] = max(0, megabytes("VmHWM:") - before)


def serve(prepare):
    """Serves until stdin ends. `prepare(row)` returns a function that takes a reading: seconds of one operation."""
    answers = os.fdopen(os.dup(1), "w")  # answers alone go to stdout: what libraries print there joins stderr
    os.dup2(2, 1)
    read = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "prepare" in request:
                read = None
                FACTS.clear()
                read = prepare(request["prepare"])
                answer = {"ready": True, **FACTS}
            else:
                answer = {"seconds": read()}
        except Exception as error:  # whatever a peer throws is its reason
            lines = str(error).strip().splitlines()
            answer = {"refused": lines[0] if lines else type(error).__name__}
        print(json.dumps(answer), file=answers, flush=True)


def read_csr(path):
    """Rows, columns, indptr and indices of a matrix that matrices.py wrote."""
    import numpy as np
    with open(path, "rb") as file:
        rows, cols, nnz = np.fromfile(file, np.int64, 3)
        return int(rows), int(cols), np.fromfile(file, np.int32, rows + 1), np.fromfile(file, np.int32, nnz)


def read_edges(path):
    """Relations, rows, columns, and relation, row and column of each edge of a file that edges.py wrote."""
    import numpy as np
    with open(path, "rb") as file:
        relations, rows, cols, count = np.fromfile(file, np.int64, 4)
        return int(relations), int(rows), int(cols), *np.fromfile(file, np.int32, 3 * count).reshape(3, count)
