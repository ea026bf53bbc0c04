"""Plays a load (weft bench serve --save) in process, at its times, and writes outcomes as weft bench serve does.

    openvino_player.py MODEL THREADS TOKENS RUNNING BATCHED LOAD OUTCOMES [GIVE_UP]

GIVE_UP: ends once more than a tenth wait longer than so many seconds for a first token; 0: never.
"""
import json
import sys
import time

import figures
import numpy
import openvino
import openvino_genai as genai


def pipeline(model, threads, tokens, running, batched):
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = tokens // 32  # blocks of 32 tokens on CPUs
    scheduler.max_num_seqs = running
    scheduler.max_num_batched_tokens = batched
    scheduler.enable_prefix_caching = True
    return genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})


def greedy(tokens):
    config = genai.GenerationConfig()
    config.do_sample, config.apply_chat_template, config.ignore_eos = False, False, True
    config.max_new_tokens = config.min_new_tokens = tokens
    return config


def play(pipe, asks, give_up=0):
    outcomes = [{"scheduled": ask["at"], "sent": -1, "first": -1, "last": -1, "end": -1, "status": 200, "complete": False,
                 "left": False, "tokens": 0, "gaps": []} for ask in asks]
    running, following, start = {}, 0, time.perf_counter()
    while following < len(asks) or running:
        now = time.perf_counter() - start
        while following < len(asks) and asks[following]["at"] <= now:
            body = asks[following]["body"]
            prompt = openvino.Tensor(numpy.array([body["prompt"]], dtype=numpy.int64))
            running[following] = pipe.add_request(following, prompt, greedy(body["max_tokens"]))
            outcomes[following]["sent"] = now
            following += 1
        if not running:
            time.sleep(max(0, asks[following]["at"] - (time.perf_counter() - start)))
            continue
        pipe.step()
        read(running, outcomes, time.perf_counter() - start, asks)
        if give_up and figures.late(outcomes, time.perf_counter() - start, give_up) > len(outcomes) / 10:
            break
    return outcomes


def read(running, outcomes, now, asks):
    for number, handle in list(running.items()):
        got = 0
        while handle.can_read():
            got += sum(len(output.generated_ids) for output in handle.read().values())
        if got == 0:
            continue
        outcome = outcomes[number]
        if outcome["first"] < 0:
            outcome["first"] = now
        else:
            outcome["gaps"].append(now - outcome["last"])
        outcome["last"] = now
        outcome["tokens"] += got
        if outcome["tokens"] >= asks[number]["body"]["max_tokens"]:
            outcome["complete"], outcome["end"] = True, now
            del running[number]


def main(model, threads, tokens, running, batched, load, path, give_up=0):
    with open(load) as file:
        asks = [json.loads(line) for line in file]
    pipe = pipeline(model, int(threads), int(tokens), int(running), int(batched))
    play(pipe, [{"at": 0, "body": {"prompt": [17] * 40, "max_tokens": 4}}])  # it compiles as it starts
    started = time.time()
    outcomes = play(pipe, asks, float(give_up))
    with open(path, "w") as file:
        for line in [{"start": started}, *outcomes]:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
