"""A model of transformers in bf16 with Weft's attention and with sdpa's: decode, prefill, and generate_batch."""
import time


def load(path):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name,
                                                             dtype=torch.bfloat16, local_files_only=True)
    return model.eval()


def seconds_of(operation):
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start


def decode(model, tokens, steps, peers_cache):
    """A reading of each implementation: seconds of a step behind so many tokens, with Weft's cache or the peer's."""
    import torch

    import weft.transformers

    ids = torch.randint(3, 40000, (1, tokens), generator=torch.Generator().manual_seed(1))
    caches = {}

    def reading(implementation):
        model.set_attn_implementation(implementation)
        with torch.inference_mode():
            if implementation not in caches:
                made = weft.transformers.cache(model.config) if implementation == "weft" else peers_cache()
                caches[implementation] = made
                model(input_ids=ids, cache=made, logits_to_keep=1)

            def run():
                for step in range(steps):
                    model(input_ids=ids[:, step:step + 1], cache=caches[implementation])

            seconds = seconds_of(run)
            caches[implementation].crop(-steps)
        return seconds / steps
    return reading


def prefill(model, tokens):
    import torch

    ids = torch.randint(3, 40000, (1, tokens), generator=torch.Generator().manual_seed(2))

    def reading(implementation):
        model.set_attn_implementation(implementation)
        with torch.inference_mode():
            return seconds_of(lambda: model(input_ids=ids, use_cache=False, logits_to_keep=1))
    return reading


def batch(model, requests, tokens, new_tokens):
    """Seconds of so many requests together in generate_batch, prompts included."""
    import logging

    import torch
    import transformers

    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    prompts = torch.randint(3, 40000, (requests, tokens), generator=torch.Generator().manual_seed(3)).tolist()
    config = transformers.GenerationConfig(max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)
    pages = -(-(tokens + new_tokens) // 256) + 1
    batching = transformers.ContinuousBatchingConfig(num_blocks=requests * pages, max_batch_tokens=1024, page_size=256)

    def reading(implementation):
        model.set_attn_implementation(implementation)
        with torch.inference_mode():
            made = {}
            seconds = seconds_of(lambda: made.update(model.generate_batch(
                prompts, generation_config=config, continuous_batching_config=batching, progress_bar=False)))
        counts = [len(x.generated_tokens) for x in made.values()]
        if counts != [new_tokens] * requests:
            raise RuntimeError(f"generate_batch, {implementation}: answered {counts} tokens")
        return seconds
    return reading


def measure(table, options):
    from transformers import DynamicCache, StaticCache

    import weft.transformers

    if options.model is None:
        raise RuntimeError("--model names none")
    weft.transformers.register()
    model = load(options.model)
    long, few, new_tokens = (128, 2, 4) if options.quick else (4096, 16, 32)
    steps = 8
    dynamic, static = (lambda: DynamicCache(config=model.config),
                       lambda: StaticCache(config=model.config, max_cache_len=long + steps))
    for name, peer, reading in (
            (f"decode behind {long:,} tokens", "sdpa, its dynamic cache", decode(model, long, steps, dynamic)),
            (f"decode behind {long:,} tokens", "sdpa, its static cache", decode(model, long, steps, static)),
            (f"prefill of {long:,} tokens", "sdpa", prefill(model, long)),
            (f"{few} requests of 256 tokens in generate_batch, {new_tokens} new ones each", "sdpa",
             batch(model, few, 256, new_tokens))):
        own, sdpa = (lambda: reading("weft")), (lambda: reading("sdpa"))
        own()  # kernels are compiled, caches filled
        sdpa()
        table.put("models", f"transformers, bf16: {name}", "ms", *table.turns(own, sdpa), peer, scale=1e3)
