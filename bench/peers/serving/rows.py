"""What is measured of servers. A measurement gives several figures; each is a row of the table."""
import dataclasses
import sys
import time
from typing import Callable

from contestants import Server as Contestant
from serving import figures, knee, rates
from serving.servers import Setup, read_outcomes

OURS, ALL = ("Weft", "Weft fast"), ("Weft", "Weft fast", "llama-server", "OpenVINO GenAI")


@dataclasses.dataclass(frozen=True)
class Figure:
    what: str
    unit: str
    lower: bool = False        # is better
    beside: tuple = ()         # Weft's contestants over this one; empty: over each peer


@dataclasses.dataclass(frozen=True)
class Measurement:
    name: str                  # for --only; a row is called NAME-FIGURE
    figures: dict
    contestants: tuple
    measure: Callable          # (machine, contestant, options) -> {figure: value}
    minutes: float             # of one reading of all contestants, about, on two cores
    rounds: int = 1
    searches: bool = False     # measure is given all sets of CPUs, not one


@dataclasses.dataclass(frozen=True)
class Options:
    quick: bool = False
    requests: int = 0          # of a trace; 0: as many as the row says
    minutes: float = 5         # that a search for a rate may take
    first_rate: float = 0      # that it begins with; 0: a guess
    time_limit: float = 0      # seconds, after which what is not answered is left, of Mooncake; 0: none
    known: Callable = lambda row, contestant: {}  # what an earlier run found


def start(machine, contestant, options):
    setup = Setup(tokens=16384, running=16, llama=("-c", 16384, "-np", 16, "--kv-unified"))  # the same memory
    with machine.start(contestant, setup) as server:
        return {"ready": server.ready_s * 1000}


def cold_prefix(machine, contestant, options):
    """Sixteen requests at once, whose first 4,096 tokens are the same and not cached."""
    own = 16
    trace = machine.prompts("cold", [(4096 + own, 8, [*range(256), 1000 + i]) for i in range(16)])
    load = ["--trace", trace, "--requests", 0, "--at-once"]
    setup = Setup(tokens=98304, running=16)
    if contestant == "OpenVINO GenAI":
        return {"last": max(figures.first_tokens(machine.play_openvino(setup, *load)))}
    with machine.start(contestant, setup) as server:
        outcomes = machine.play(server, *load)
        found = {"last": max(figures.first_tokens(outcomes))}
        if contestant in OURS:
            found["computed"] = server.metrics()["weft_prompt_tokens_computed_total"] / (4096 + 16 * own)
    return found


def choices(n):
    def measure(machine, contestant, options):
        with machine.start(contestant, Setup(running=64)) as server:
            one = machine.play(server, "--requests", 1, "--choices", n, "--prompt-tokens", 1024, "--output-tokens",
                               64 if options.quick else 128)[0]
        return {"decode": (one["tokens"] - n) / (one["last"] - one["first"])}
    return measure


def streams(*sampling):
    """Sixteen streams after 128 tokens, beside the same decode without a server."""
    def measure(machine, contestant, options):
        steps = 64
        if contestant == "weft bench model":
            alone = Contestant([machine.programs / "weft_contestant"],
                               {"kind": "decode", "model": machine.model, "prompt": 128, "steps": steps, "sequences": 16,
                                "shared": False, "precision": "default", "threads": machine.threads})
            rate = 16 * steps / sorted(alone.read() for _ in range(3))[1]
            alone.close()
            return {"decode": rate}
        more = ["--reproducible"] if contestant == "Weft, reproducible" else []
        with machine.start("Weft", Setup(running=16)) as server:
            outcomes = machine.play(server, "--requests", 16, "--at-once", "--prompt-tokens", 128, "--output-tokens",
                                    steps + 32, *sampling, *more)
        return {"decode": figures.decode_rate(outcomes)}
    return measure


def target(milliseconds):
    """Eight streams decode while prompts of 4,106 tokens come one after another."""
    def measure(machine, contestant, options):
        prompts, tokens = 2 if options.quick else 4, 4106
        with machine.start(contestant, Setup(running=16, weft=("--target-itl", milliseconds))) as server:
            alone = machine.play(server, "--requests", prompts, "--at-once", "--prompt-tokens", tokens, "--output-tokens", 1,
                                 "--seed", 2)
            process, outcomes = machine.client(server.url, "--requests", 8, "--at-once", "--prompt-tokens", 128,
                                               "--output-tokens", 8000)
            time.sleep(3)
            begin = time.time()
            machine.play(server, "--requests", prompts, "--at-once", "--prompt-tokens", tokens, "--output-tokens", 1,
                         "--seed", 3)
            end = time.time()
        process.wait()
        rate_alone = prompts * tokens / max(o["last"] for o in alone)
        late = figures.gaps_within(read_outcomes(outcomes), begin, end)
        return {"gap": figures.percentile(late, 0.99) * 1000 / milliseconds,
                "prefill": prompts * tokens / (end - begin) / rate_alone}
    return measure


def overload(machine, contestant, options):
    """Goodput at twice the rate that is served, with a queue for two seconds."""
    shape = ["--prompt-tokens", 256, "--output-tokens", 64]
    with machine.start(contestant) as server:
        many = machine.play(server, "--requests", 40 if options.quick else 100, "--at-once", *shape)
    capacity = len(many) / max(o["last"] for o in many)
    good, refusals = {}, []
    for share in (0.8, 1, 2):
        rate = share * capacity
        setup = Setup(queued=max(1, round(2 * capacity)))
        with machine.start(contestant, setup) as server:
            outcomes = machine.play(server, "--requests", round(rate * (10 if options.quick else 30)), "--rate", rate, *shape)
        good[share] = figures.goodput(outcomes, 5, 0.15)
        if share == 2:
            refusals = [o["end"] - o["sent"] for o in outcomes if o["status"] == 429]
    return {"goodput": good[2] / max(good.values()), "refusal": figures.percentile(refusals, 0.99) * 1000}


def killed(machine, contestant, options):
    """Clients that leave while they send, wait or read."""
    def load(count, seed):
        return ["--requests", count, "--rate", 150, "--cancel", 1, "--prompt-tokens", 16, "--output-tokens", 16, "--seed", seed]

    with machine.start(contestant, Setup(tokens=8192)) as server:  # a small pool, that all of it is in use before
        machine.play(server, *load(1000, 2))
        before = server.rss_kb()
        for part in range(1 if options.quick else 10):
            machine.play(server, *load(1000, 3 + part))
            print(f"  {1000 * (part + 1)} clients killed, memory {server.rss_kb() / before:.4f} of before", file=sys.stderr,
                  flush=True)
        return {"pages": server.pages_lost(), "rss": server.rss_kb() / before}


def sharegpt(machine, contestant, options):
    count = options.requests or (20 if options.quick else 200)
    setup = Setup(running=64, batched=2048)
    outcomes = machine.answer(contestant, setup, "--trace", machine.trace("sharegpt_llama31_300_blk16.jsonl"), "--requests", count,
                              "--at-once", "--most-prompt", 7000)
    return {"throughput": figures.throughput(outcomes)}


def mooncake(machine, contestant, options):
    """A sixteenth of its lengths, four times as fast; the pool holds all, so that every prefix that came before is there."""
    count = options.requests or (60 if options.quick else 600)
    load = ["--trace", machine.trace("mooncake_conversation_first30min.jsonl"), "--requests", count, "--divide", 16, "--rate", 4]
    setup, limit = Setup(tokens=655360, running=64), options.time_limit
    with machine.start(contestant, setup) as server:
        outcomes = machine.play(server, *load, *(["--time-limit", limit] if limit else []))
        firsts = figures.waits(outcomes, limit) if limit else figures.first_tokens(outcomes)
        found = {"first": figures.percentile(firsts, 0.5) * 1000, "without": sum(o["first"] < 0 for o in outcomes) if limit else 0}
        if contestant in OURS:
            metrics = server.metrics()
            found["computed"] = metrics["weft_prompt_tokens_computed_total"] / rates.distinct_tokens(load, machine)
    return found


MEASUREMENTS = [
    Measurement("start", {"ready": Figure("process start to ready", "ms", True)}, ("Weft", "llama-server"), start, 0.2, 5),
    Measurement("cold-prefix", {"computed": Figure("16 together, one cold prefix of 4,096: computed over distinct tokens", "x", True),
                                "last": Figure("16 together, one cold prefix of 4,096: last first token", "s", True)},
                ALL, cold_prefix, 3),
    *[Measurement(f"choices-{n}", {"decode": Figure(f"one prompt of 1,024, n = {n}: decode", "tok/s", beside=("Weft, no levels",))},
                  ("Weft", "Weft, no levels"), choices(n), 0.5, 3) for n in (4, 16, 64)],
    *[Measurement(f"http-{name}", {"decode": Figure(f"16 streams over HTTP, {name}: decode", "tok/s", beside=beside)},
                  ("Weft", *beside), streams(*sampling), 0.4, 3)
      for name, sampling, beside in (("greedy", (), ("weft bench model", "Weft, reproducible")),
                                     ("top-p", ("--temperature", 1, "--top-p", 0.9), ("weft bench model",)))],
    *[Measurement(f"target-{ms}", {"gap": Figure(f"8 streams beside prompts, P99 gap over a target of {ms} ms", "x", True),
                                   "prefill": Figure(f"the prompts beside 8 streams, target {ms} ms, over alone", "x")},
                  ("Weft",), target(ms), 0.9, 3) for ms in (60, 120, 250)],
    Measurement("overload", {"goodput": Figure("twice the capacity: goodput over its peak", "x"),
                             "refusal": Figure("twice the capacity: P99 of a 429", "ms", True)}, ("Weft",), overload, 2.5),
    Measurement("knee", {"goodput": Figure("256 tokens in, 64 out, under rising rates: highest goodput", "req/s")}, ("Weft",),
                knee.measure, 5),
    Measurement("killed", {"pages": Figure("10,000 clients killed: pages lost", "pages", True),
                           "rss": Figure("10,000 clients killed: memory over before", "x", True)}, ("Weft",), killed, 1.5),
    Measurement("slow-clients", {mode: Figure(f"1,000 slow connections ({mode}): P99 first token of 4 good clients over alone", "x",
                                              True) for mode in ("header", "body", "read")}, ("Weft",), rates.slow_clients, 2),
    Measurement("reproducible", {"same": Figure("requests whose answer is the one they have alone, under load", "x")}, ("Weft",),
                rates.reproducible, 5),
    Measurement("sharegpt", {"throughput": Figure("ShareGPT, 200 at once", "tok/s")}, ALL, sharegpt, 30),
    Measurement("mooncake", {"computed": Figure("Mooncake: prompt tokens computed over an unlimited cache's", "x", True),
                             "first": Figure("Mooncake: P50 first token", "ms", True)}, (*OURS, "llama-server"), mooncake, 20),
    Measurement("azure-30s", {"rate": Figure("Azure, P90 gap 150 ms, P90 first token 30 s: highest rate", "req/s")},
                ("Weft", "llama-server"), rates.azure(30), 40, searches=True),
    Measurement("azure-5s", {"rate": Figure("Azure, P90 gap 150 ms, P90 first token 5 s: highest rate", "req/s")},
                (*OURS, "OpenVINO GenAI"), rates.azure(5), 40, searches=True),
]
