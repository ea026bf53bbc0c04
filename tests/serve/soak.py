#!/usr/bin/env python3
"""Serves for an hour as it may come: streams and choices, clients that leave, a pool that is too small, the same answers asked
for again and again. After each round no page is lost, memory has not grown, and answers are those of the start.

    tests/serve/soak.py [--seconds 3600] [--seed 1] [--model FILE.gguf] [--build build/release]
"""
import argparse
import os
import pathlib
import random
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))
from serving.servers import PAGE, Machine, Setup, read_outcomes  # noqa: E402

SETUP = Setup(tokens=16384, running=24)
WARM_ROUNDS = 3       # after these, memory is what it stays
MOST_GROWTH = 1.01


def loads(seed, chance):
    """What comes in a round, beside the answers that must be the same."""
    return [["--requests", 150, "--rate", chance.choice((10, 30)), "--cancel", 0.5, "--prompt-tokens", 64, "--output-tokens", 32,
             "--temperature", 1, "--top-p", 0.9, "--seed", seed],
            ["--requests", 8, "--rate", 4, "--choices", chance.choice((2, 4, 16)), "--prompt-tokens", 300, "--output-tokens", 24,
             "--temperature", 0.8, "--seed", seed + 1],
            ["--requests", 3, "--at-once", "--prompt-tokens", chance.choice((1000, 4000)), "--output-tokens", 200,
             "--cancel", 0.3, "--seed", seed + 2]]


def same_answers(machine):
    """Prompts of a few families, which share what they begin with."""
    lines = []
    for number in range(24):
        blocks = [*range(100 * (number % 3), 100 * (number % 3) + 4 * (number % 5)), *range(1000 + 20 * number, 1008 + 20 * number)]
        lines.append((PAGE * len(blocks), 24, blocks))
    return ["--trace", machine.prompts("same", lines), "--requests", 0, "--at-once", "--reproducible"]


def digests(outcomes):
    assert all(o["complete"] for o in outcomes), "an answer is not complete"
    return [o["digest"] for o in outcomes]


def play_round(machine, server, seed):
    """Requests that were sent, and digests of the answers that must be the same."""
    playing = [machine.client(server.url, *load) for load in loads(seed, random.Random(seed))]
    found = digests(machine.play(server, *same_answers(machine)))
    sent = len(found)
    for process, outcomes in playing:
        assert process.wait() == 0, "a client failed"
        sent += len(read_outcomes(outcomes))
    return sent, found


def soak(machine, seconds, first_seed):
    begin, sent, warm = time.monotonic(), 0, 0
    with machine.weft(SETUP) as server:
        expected = digests(machine.play(server, *same_answers(machine)))
        number = 0
        while number <= WARM_ROUNDS or time.monotonic() - begin < seconds:
            count, found = play_round(machine, server, first_seed + 10 * number)
            assert found == expected, f"round {number}: answers differ"
            lost = server.pages_lost()
            assert lost == 0, f"round {number}: {lost} pages are lost"
            failed = server.metrics()["weft_requests_failed_total"]
            assert failed == 0, f"round {number}: {failed} requests failed"
            memory, sent, number = server.rss_kb(), sent + count, number + 1
            warm = memory if number <= WARM_ROUNDS else warm
            print(f"soak: {time.monotonic() - begin:.0f} of {seconds} s, {sent} requests, memory {memory / warm:.4f} of before",
                  flush=True)
            assert memory <= MOST_GROWTH * warm, "memory grows"
        assert server.process.poll() is None, "the server has ended"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", help="a GGUF file; default: tools/fetch_model.sh fetches one")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    arguments = parser.parse_args()
    model = arguments.model or subprocess.run([ROOT / "tools/fetch_model.sh"], check=True, stdout=subprocess.PIPE,
                                              text=True).stdout.strip()
    machine = Machine(arguments.build / "bin", model, len(os.sched_getaffinity(0)), None)
    try:
        soak(machine, arguments.seconds, arguments.seed)
    finally:
        machine.close()
    print("soak: well")


if __name__ == "__main__":
    main()
