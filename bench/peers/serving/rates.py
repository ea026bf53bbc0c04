"""Measurements that take several loads: the highest rate, slow clients, answers that must be the same."""
import gzip
import itertools
import json
import math
import random
import shutil
import subprocess
import time

from contestants import Refused
from serving import figures
from serving.beside import spread
from serving.servers import PAGE, Setup

FIRST_GUESS = {"Weft": 0.6, "Weft fast": 0.7, "llama-server": 0.12, "OpenVINO GenAI": 0.6}  # requests a second


def distinct_tokens(load, machine):
    """Prompt tokens that a cache of whole pages without limits would compute, one request after another."""
    path = machine.folder / "distinct"
    machine.client(None, "--save", path, *load)[0].wait()
    seen, computed = set(), 0
    for line in path.read_text().splitlines():
        prompt, at, before = json.loads(line)["body"]["prompt"], 0, 0
        hits = True
        for end in range(PAGE, len(prompt) + 1, PAGE):
            before = hash((before, tuple(prompt[end - PAGE:end])))
            hits = hits and before in seen and end < len(prompt)  # the last token is computed for its logits
            at = end if hits else at
            seen.add(before)
        computed += len(prompt) - at
    return computed


def next_rates(guess, low, high, count):
    """What to try beside each other: outwards from a guess until the rate is bracketed, then within."""
    if low == 0 and high == math.inf:
        return [guess * 1.4 ** (i - count // 2) for i in range(count)]
    if low == 0:
        return [high / 1.4 ** (i + 1) for i in range(count)]
    return [min(low * 1.4 ** (i + 1), low * (high / low) ** ((i + 1) / (count + 1))) for i in range(count)]


def search(holds, guess, low, high, minutes, count=1, first=0):
    """Brackets the highest rate that holds within 5 %: (holds, fails), as far as the time allows. `holds` is asked about
    `count` rates at once, about the `first` one before others if it may tell something."""
    until = time.monotonic() + 60 * minutes
    longest = 0
    while not (0 < low and high <= 1.05 * low):
        began = time.monotonic()
        if began + longest > until:
            break
        rates = [first] if low < first < high else next_rates(guess, low, high, count)
        fits = holds(rates)
        high = min([high, *(rate for rate, fit in zip(rates, fits) if not fit)])
        low = max([low, *(rate for rate, fit in zip(rates, fits) if fit and rate < high)])
        longest = max(longest, time.monotonic() - began)
    return low, high


def azure_at(machine, contestant, count, rate, *more):
    """Outcomes of Azure's first conversations, as much faster or slower as the rate says."""
    trace = machine.trace("azure2023_conv.csv")
    with gzip.open(trace, "rt") as lines:
        last_ms = float(next(itertools.islice(lines, count, None)).split(",")[0])
    own_rate = (count - 1) / last_ms * 1000
    setup = Setup(running=16, batched=256, weft=("--target-itl", 140))
    return machine.answer(contestant, setup, "--trace", trace, "--requests", count, "--most-prompt", 7168,
                          "--rate", rate / own_rate, *more)


def azure(first_s):
    """The highest rate; on several sets of CPUs as many rates are tried at once."""
    def measure(machines, contestant, options):
        count = options.requests or (20 if options.quick else 200)

        def holds_at(machine, rate):
            outcomes = azure_at(machine, contestant, count, rate, "--give-up", first_s)
            fits = figures.holds(outcomes, first_s, 0.15)
            print(f"  {contestant} at {rate:.3f} req/s: {'holds' if fits else 'fails'}; {len(figures.complete(outcomes))} answered, of "
                  f"these P90 first token {figures.percentile(figures.first_tokens(outcomes), 0.9):.2f} s, "
                  f"gap {figures.percentile(figures.gaps(outcomes), 0.9) * 1000:.0f} ms", flush=True)
            return fits

        known = options.known(f"azure-{first_s}s-rate", contestant)
        low, high = search(lambda rates: spread(machines, rates, holds_at), FIRST_GUESS[contestant], known.get("median", 0) or 0,
                           known.get("fails") or math.inf, options.minutes, len(machines), options.first_rate)
        return {"rate": low, "fails": None if high == math.inf else high}
    return measure


def slow_clients(machine, contestant, options):
    """Four requests a second, alone and beside a thousand connections that send or read a byte now and then.

    Who attacks has a machine of its own: here it takes the time that others leave."""
    if shutil.which("slowhttptest") is None:
        raise Refused("slowhttptest is not installed (apt-get install slowhttptest)")
    seconds = 10 if options.quick else 25
    load = ["--rate", 4, "--prompt-tokens", 64, "--output-tokens", 16]
    attacks = {"alone": None, "header": ["-H"], "body": ["-B", "-t", "POST", "-f", "application/json"],
               "read": ["-X", "-w", 1, "-y", 2, "-n", 5, "-z", 1, "-k", 3]}
    late = {}
    for name, words in attacks.items():  # the same arrivals and prompts, at a server that knows none of them
        with machine.start(contestant, Setup(running=16)) as server:
            machine.play(server, "--requests", 20, *load, "--seed", 2)
            url = server.url + ("/v1/completions" if name == "body" else "/")
            attack = words and subprocess.Popen([str(word) for word in ("nice", "-n", 19, "slowhttptest", "-c", 1000, "-r", 500, "-i", 5,
                                                                        "-l", seconds + 5, *words, "-u", url)], stdout=subprocess.DEVNULL)
            time.sleep(3)
            firsts = figures.first_tokens(machine.play(server, "--requests", 4 * seconds, *load))
            if attack:
                attack.terminate()
                attack.wait()
        late[name] = figures.percentile(firsts, 0.99)
        print(f"  {name}: P50 {1000 * figures.percentile(firsts, 0.5):.1f} ms, P99 {1000 * late[name]:.1f} ms", flush=True)
    return {name: value / late["alone"] for name, value in late.items() if name != "alone"}


def reproducible(machine, contestant, options):
    """Answers one at a time, and again all at once beside clients that leave, in a pool that must evict."""
    count, random_ = (100 if options.quick else 1000), random.Random(5)
    lines = []
    for number in range(count):
        family, shared, own = random_.randrange(4), 4 * random_.randrange(6), 4 + random_.randrange(12)
        blocks = [*range(100 * family, 100 * family + shared), *range(1000 + 20 * number, 1000 + 20 * number + own)]
        lines.append((PAGE * len(blocks), 24, blocks))
    trace = machine.prompts("reproducible", lines)
    load = ["--trace", trace, "--requests", 0, "--at-once", "--reproducible"]
    with machine.start(contestant, Setup(running=1)) as server:
        alone = machine.play(server, *load)
    with machine.start(contestant, Setup(tokens=8192, running=32)) as server:
        others, left = machine.client(server.url, "--requests", count // 2, "--rate", 20, "--cancel", 0.5, "--seed", 9)
        together = machine.play(server, *load)
        others.wait()
    same = sum(a["digest"] == b["digest"] and a["complete"] and b["complete"] for a, b in zip(alone, together))
    return {"same": same / count}
