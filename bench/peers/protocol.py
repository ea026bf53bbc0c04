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
                read = prepare(request["prepare"])
                answer = {"ready": True}
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
