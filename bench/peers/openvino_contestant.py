"""OpenVINO GenAI's part in the comparison: whole models, in its default settings (8-bit keys and values).

    openvino_contestant.py                                      serves rows (protocol.py)
    openvino_contestant.py --first-token MODEL PROMPT THREADS   prints the prompt's next token and ends
"""
import sys
import time

import numpy
import openvino
import openvino_genai as genai

from protocol import Refused, serve


def pipeline(model, threads, prefix_caching):
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2  # GB
    scheduler.max_num_batched_tokens = 1 << 20  # a prompt is one step, as its pipeline for single requests has it
    scheduler.enable_prefix_caching = prefix_caching
    return genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})


def greedy(tokens):
    config = genai.GenerationConfig()
    config.do_sample, config.apply_chat_template, config.ignore_eos = False, False, True
    config.max_new_tokens = config.min_new_tokens = tokens
    return config


class Session:
    def __init__(self, row, prefix_caching):
        self.pipe = pipeline(row["model"], row["threads"], prefix_caching)
        self.vocabulary = len(self.pipe.get_tokenizer().get_vocab())
        self.requests = 0

    def prompt(self, length, sequence):
        ids = [(i * 7919 + sequence * 101 + 13) % self.vocabulary for i in range(length)]
        return openvino.Tensor(numpy.array([ids], dtype=numpy.int64))

    def add(self, prompt, tokens):
        self.requests += 1
        return self.pipe.add_request(self.requests, prompt, greedy(tokens))

    def finish(self):
        while self.pipe.has_non_finished_requests():
            self.pipe.step()


def prepare(row):
    if row["kind"] == "prefill":
        session = Session(row, prefix_caching=False)
        prompt = session.prompt(row["prompt"], 0)

        def read_prefill():
            start = time.perf_counter()
            handle = session.add(prompt, 1)  # dropped, it would cancel the request
            session.finish()
            assert handle.can_read()
            return time.perf_counter() - start

        read_prefill()
        return read_prefill
    if row["kind"] != "decode":
        raise Refused("OpenVINO GenAI is measured with whole models")

    session = Session(row, prefix_caching=True)
    steps, sequences = row["steps"], row["sequences"]

    def prompts():
        if not row["shared"]:
            return [session.prompt(row["prompt"], s) for s in range(sequences)]
        # The last token differs: what stands before it is found in the cache of prefixes.
        shared = session.prompt(row["prompt"], 0).data
        different = []
        for s in range(sequences):
            ids = shared.copy()
            ids[0, -1] = 13 + s
            different.append(openvino.Tensor(ids))
        return different

    def read_decode():
        handles = [session.add(prompt, steps + 1) for prompt in prompts()]
        answered = [0] * sequences
        # Until each request has its first token: prompts come from the cache of prefixes, but for their last block.
        while min(answered) == 0:
            session.pipe.step()
            for s, handle in enumerate(handles):
                while handle.can_read():
                    answered[s] += sum(len(output.generated_ids) for output in handle.read().values())
        left = (steps + 1) * sequences - sum(answered)
        start = time.perf_counter()
        session.finish()
        return (time.perf_counter() - start) * steps * sequences / left  # some may be a few tokens ahead by then

    read_decode()
    return read_decode


def first_token(model, prompt, threads):
    pipe = pipeline(model, threads, False)
    print(pipe.generate([prompt], [greedy(1)])[0].m_generation_ids[0], end="", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first-token"]:
        first_token(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        serve(prepare)
