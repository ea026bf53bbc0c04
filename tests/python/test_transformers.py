"""transformers' models with Weft's attention, against their own eager attention: tiny ones with random weights."""
import copy
import logging
import pickle
import re
import tempfile
import unittest

import torch
import transformers

import weft
import weft.transformers
from support import ROOT, TestCase

weft.transformers.register()
logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
transformers.logging.set_verbosity_error()
SIZES = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=256, pad_token_id=0, bos_token_id=1,
             eos_token_id=2)
TOKENS = torch.randint(3, 96, (2, 21), generator=torch.Generator().manual_seed(1))


def model_of(config, family=None, **more):
    torch.manual_seed(3)
    made = getattr(transformers, config + "Config")(**{**SIZES, **more})
    model = getattr(transformers, (family or config) + "ForCausalLM")(made).eval()
    for name, parameter in model.named_parameters():
        if "q_proj" in name or "k_proj" in name:  # attention that decides something
            parameter.data.mul_(20)
    return model


class Models(TestCase):
    def logits(self, model, implementation, **inputs):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            return model(**inputs).logits

    def generated(self, model, implementation, **options):
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            made = model.generate(do_sample=False, max_new_tokens=12, output_logits=True, return_dict_in_generate=True,
                                  eos_token_id=-1, **options)
        return made.sequences, torch.stack(made.logits)

    def check(self, model, **options):
        mask = torch.ones_like(TOKENS)
        mask[0, :9] = 0  # padded on the left, as generate wants it
        inputs = {"input_ids": TOKENS, "attention_mask": mask}
        want = self.logits(model, "eager", input_ids=TOKENS)
        self.assert_close(self.logits(model, "weft", input_ids=TOKENS), want, 2e-4)
        seen = mask.bool()
        self.assert_close(self.logits(model, "weft", **inputs)[seen], self.logits(model, "eager", **inputs)[seen], 2e-4)
        tokens, logits = self.generated(model, "weft", **inputs, **options)
        want_tokens, want = self.generated(model, "eager", **inputs, **options)
        self.assertEqual(tokens.tolist(), want_tokens.tolist())
        self.assert_close(logits, want, 2e-4)

    def test_llama(self):
        self.check(model_of("Llama"))
        self.check(model_of("Llama"), cache_implementation="static")

    def test_qwen3(self):
        self.check(model_of("Qwen3"))

    def test_gemma2_caps_and_windows(self):
        model = model_of("Gemma2", sliding_window=8, attn_logit_softcapping=2.0, query_pre_attn_scalar=40)
        self.check(model)
        self.check(model, cache_implementation="static")

    def test_gemma3_windows(self):
        self.check(model_of("Gemma3Text", "Gemma3", sliding_window=6, query_pre_attn_scalar=16,
                            layer_types=["sliding_attention", "full_attention"]))

    def test_gpt_oss_sinks(self):
        model = model_of("GptOss", num_local_experts=2, num_experts_per_tok=1, sliding_window=8)
        for layer in model.model.layers:
            torch.nn.init.normal_(layer.self_attn.sinks, std=2)
        self.check(model)

    def test_dense_masks_and_encoders(self):
        model = model_of("Llama")
        draw = torch.rand(2, 1, 21, 21, generator=torch.Generator().manual_seed(2))
        seen = (draw < 0.6) | torch.eye(21, dtype=torch.bool)
        per_head = torch.rand(2, 4, 21, 21, generator=torch.Generator().manual_seed(4))
        hidden = torch.finfo(torch.float32).min
        for mask in (torch.where(seen, 0.0, hidden), torch.where(seen, draw, -torch.inf), per_head):
            want = self.logits(model, "eager", input_ids=TOKENS, attention_mask=mask)
            self.assert_close(self.logits(model, "weft", input_ids=TOKENS, attention_mask=mask), want, 2e-4)
        want = self.logits(model, "sdpa", input_ids=TOKENS, attention_mask=seen)
        self.assert_close(self.logits(model, "weft", input_ids=TOKENS, attention_mask=seen), want, 2e-4)
        torch.manual_seed(3)
        bert = transformers.BertModel(transformers.BertConfig(**{**SIZES, "hidden_size": 64})).eval()
        for mask in (None, (TOKENS > 20).long()):
            made = []
            for implementation in ("weft", "eager"):
                bert.set_attn_implementation(implementation)
                with torch.no_grad():
                    made.append(bert(input_ids=TOKENS, attention_mask=mask).last_hidden_state)
            self.assert_close(*made, 2e-4)

    def test_padding_of_what_a_decoder_looks_at(self):
        """More keys than queries, of which only some are there."""
        torch.manual_seed(3)
        sizes = {f"{part}_{name}": x for part in ("encoder", "decoder")
                 for name, x in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 64))}
        bart = transformers.BartForConditionalGeneration(transformers.BartConfig(
            vocab_size=96, d_model=64, max_position_embeddings=64, **sizes)).eval()
        inputs = {"input_ids": TOKENS, "attention_mask": (torch.arange(21) < torch.tensor([[12], [21]])).long()}
        for queries in (7, 1):
            made, want = (self.logits(bart, implementation, **inputs, decoder_input_ids=TOKENS[:, :queries])
                          for implementation in ("weft", "eager"))
            self.assert_close(made, want, 1e-5)

    def test_intervals_where_masks_are(self):
        seen = weft.transformers.mask(2, 5, 40, 35, 0)
        self.assertTrue(seen.pattern.is_causal)
        self.assertEqual((seen.pattern.plain.text, tuple(seen.shape)), ("", (2, 1, 5, 40)))
        self.assertIs(weft.transformers.mask(2, 1, 41, 40, 0).pattern, seen.pattern)
        function = transformers.masking_utils.sliding_window_causal_mask_function(8)
        near = weft.transformers.mask(1, 1, 8, 40, 33, function)
        self.assertEqual(near.pattern.plain.text, "")
        function = transformers.masking_utils.sliding_window_causal_mask_function(8)
        again = weft.transformers.mask(1, 1, 8, 41, 34, function)
        self.assertIs(again.pattern, near.pattern)
        self.assertEqual(weft.transformers.mask(1, 5, 64, 9, 0).kv_len, 14)  # a static cache

    def test_masks_against_those_that_transformers_makes(self):
        utils = transformers.masking_utils
        chunks = utils.and_masks(utils.chunked_overlay(4, torch.tensor([0, 3])), utils.causal_mask_function)
        fours = utils.and_masks(lambda b, h, q, kv: kv // 4 == q // 4, utils.causal_mask_function)
        both_ways = utils.sliding_window_bidirectional_mask_function(3)
        packed = utils.packed_sequence_mask_function(torch.tensor([[0] * 7 + [1] * 13, [0] * 10 + [1] * 10]))
        q, k, v = (torch.randn(2, heads, 9, 16) for heads in (4, 2, 2))
        module = torch.nn.Module()
        for function, queries, keys, q_offset, kv_offset in (
                (chunks, 3, 9, 8, 2), (fours, 3, 9, 8, 2), (fours, 3, 9, 9, 3), (both_ways, 3, 9, 2, 0),
                (lambda b, h, q, kv: kv <= q + 1, 3, 9, 2, 0), (both_ways, 9, 9, 0, 0),
                (packed, 4, 9, 8, 3), (utils.causal_mask_function, 2, 9, 4, 0),
                (lambda b, h, q, kv: kv <= q if q.numel() else kv < q, 3, 9, 6, 0)):
            where = dict(batch_size=2, q_length=queries, kv_length=keys, q_offset=q_offset, kv_offset=kv_offset,
                         mask_function=function)
            dense = utils.sdpa_mask(**where, allow_is_causal_skip=False)
            o, _ = weft.transformers.attention(module, q[:, :, :queries], k, v, weft.transformers.mask(**where))
            want, _ = weft.transformers.attention(module, q[:, :, :queries], k, v, dense)
            by_torch = torch.nn.functional.scaled_dot_product_attention(q[:, :, :queries], k, v, dense, enable_gqa=True)
            self.assert_close(want.transpose(1, 2), by_torch)
            self.assert_close(o, want)

    def test_a_cache_that_writes_in_place(self):
        for model in (model_of("Llama"), model_of("Gemma2", sliding_window=8, query_pre_attn_scalar=40)):
            model.set_attn_implementation("weft")
            tokens = TOKENS.repeat(1, 20)
            own, theirs = weft.transformers.cache(model.config), transformers.DynamicCache(config=model.config)
            memory = set()

            def step(ids):
                with torch.no_grad():
                    made, want = model(input_ids=ids, cache=own).logits, model(input_ids=ids, cache=theirs).logits
                self.assert_close(made, want, 2e-4)
                for a, b in zip(own.layers, theirs.layers):
                    self.assertTrue(torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values))
                    self.assertEqual(a.get_seq_length(), b.get_seq_length())
                memory.add(own.layers[-1].keys.data_ptr())

            step(tokens[:, :7])
            for i in range(7, 12):
                step(tokens[:, i:i + 1])
            self.assertEqual(len(memory), 1)  # nothing was copied
            if model.config.model_type == "llama":
                for cache in (own, theirs):
                    cache.crop(-4)
                step(tokens[:, 30:33])
                self.assertEqual(len(memory), 1)
            step(tokens[:, 40:300])
            self.assertEqual(len(memory), 2)  # there was no room
            order = torch.tensor([1, 0])
            for cache in (own, theirs):
                cache.reorder_cache(order)
            step(tokens[:, 20:21])
            for cache in (own, theirs):
                cache.batch_select_indices(torch.tensor([1]))
            step(tokens[:1, 21:22])
            for cache in (own, theirs):
                cache.reset()
            step(tokens[:1, :5])

    def test_generates_with_the_cache_that_writes_in_place(self):
        model = model_of("Llama")
        want, _ = self.generated(model, "weft", input_ids=TOKENS)
        made, _ = self.generated(model, "weft", input_ids=TOKENS, cache=weft.transformers.cache(model.config))
        self.assertEqual(made.tolist(), want.tolist())

    def test_the_cache_is_as_good_as_transformers_own(self):
        """Where it may not write in place, and where somebody else has its tokens."""
        model = model_of("Llama")
        model.set_attn_implementation("sdpa")
        inputs = {"input_ids": TOKENS, "use_cache": True}

        def both(step):
            own, theirs = weft.transformers.cache(model.config), transformers.DynamicCache(config=model.config)
            self.assert_close(step(own), step(theirs), 2e-4)
            self.assertTrue(torch.equal(own.layers[-1].keys, theirs.layers[-1].keys))

        def inference(cache):
            with torch.inference_mode():
                model(**inputs, cache=cache)
            with torch.no_grad():
                return model(input_ids=TOKENS[:, :1], cache=cache).logits

        def gradient(cache):
            model.zero_grad()
            logits = model(**inputs, cache=cache).logits
            (logits.sum() + model(input_ids=TOKENS[:, :3], cache=cache).logits.sum()).backward()
            return model.model.layers[0].self_attn.k_proj.weight.grad

        def copied(copy_of):
            def step(cache):
                with torch.no_grad():
                    model(**inputs, cache=cache)
                    model(input_ids=TOKENS[:, :1], cache=cache)
                    copies = copy.copy(cache)
                    copies.layers = [copy_of(layer) for layer in cache.layers]
                    made = model(input_ids=TOKENS[:, :1], cache=cache).logits
                    return torch.stack([made, model(input_ids=TOKENS[:, 1:2], cache=copies).logits,
                                        model(input_ids=TOKENS[:, 2:3], cache=cache).logits])
            return step

        for step in (inference, gradient, copied(copy.copy), copied(copy.deepcopy),
                     copied(lambda layer: pickle.loads(pickle.dumps(layer)))):
            both(step)
        pairs = [(torch.randn(2, 2, 3, 16), torch.randn(2, 2, 3, 16))] * 2
        self.assertEqual(weft.transformers.cache(model.config, ddp_cache_data=pairs).get_seq_length(), 3)
        layer, other = weft.transformers.cache(model.config).layers
        with torch.no_grad():  # tokens that others have put in place
            for one in (layer, other):
                one.update(torch.randn(2, 2, 6, 16), torch.randn(2, 2, 6, 16))
            for keys, values in ((layer.keys[:, :, ::2], layer.values[:, :, ::2]), (other.keys, other.values)):
                want, new = keys.clone(), torch.randn(2, 2, 1, 16)
                layer.keys, layer.values = keys, values
                self.assertTrue(torch.equal(layer.update(new, new)[0], torch.cat([want, new], 2)))
        layer = weft.transformers.cache(model.config).layers[0]
        half = torch.ones(2, 2, 3, 16, dtype=torch.bfloat16)
        with torch.no_grad():
            layer.update(half, half)
            keys, _ = layer.update(half.float() * 1.001, half)
            self.assertEqual((keys.dtype, layer.values.dtype), (torch.float32, torch.bfloat16))
            self.assert_close(keys[:, :, 3:], half.float() * 1.001)
            for other in (half[:1], half[:, :1], half[..., :8]):
                self.assertRaises(RuntimeError, layer.update, other, other)

    def test_the_document(self):
        """docs/python.md's example, over a model in a folder."""
        example = re.search(r"## transformers\n.*?```py\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)[1]
        with tempfile.TemporaryDirectory() as path:
            model_of("Llama").save_pretrained(path)
            exec(example, {"weft": weft, "torch": torch, "AutoModelForCausalLM": transformers.AutoModelForCausalLM,
                           "path": path, "inputs": {"input_ids": TOKENS}, "prompts": TOKENS.tolist()})

    def test_refusals(self):
        model = model_of("Llama")
        model.set_attn_implementation("weft")
        with self.assertRaisesRegex(weft.Error, "unsupported: .*gradient"):
            model(input_ids=TOKENS)
        q = torch.zeros(1, 4, 3, 16)
        module = torch.nn.Module()
        for says, options in (("dropout", {"dropout": 0.5}), ("position_bias", {"position_bias": q}),
                              ("output_attentions", {"output_attentions": True})):
            self.assert_refused("unsupported", says, weft.transformers.attention, module, q, q, q, None, **options)
        self.assert_refused("unsupported", "float64", weft.transformers.attention, module, q.double(), q, q, None)
        self.assert_refused("unsupported", "has no elements", weft.transformers.attention, module, q, q, q,
                            weft.transformers.mask(1, 3, 3)[:, :, :2])
        self.assert_refused("invalid_shape", "attention_mask: has the shape (3, 3, 3)", weft.transformers.attention,
                            module, q, q, q, q[0, :3, :, :3])
        self.assert_refused("invalid_argument", "name = 'sdpa'", weft.transformers.register, "sdpa")
        sdpa, mask = torch.nn.functional.scaled_dot_product_attention, weft.transformers.mask
        attention = weft.transformers.attention
        k = torch.randn(2, 2, 9, 16)
        q = torch.randn(2, 4, 3, 16)
        for shape in ((2, 4, 3, 9), (1, 1, 3, 9), (1, 4, 3, 9), (2, 1, 1, 9), (1, 1, 1, 9)):  # those that torch takes
            dense = torch.randn(shape)
            made, _ = attention(module, q, k, k, dense)
            self.assert_close(made.transpose(1, 2), sdpa(q, k, k, dense, enable_gqa=True))
        for shape in ((3, 1, 3, 9), (2, 2, 3, 9), (2, 1, 2, 9), (2, 1, 3, 8), (1, 3, 9)):
            self.assert_refused("invalid_shape", "attention_mask: has the shape", attention, module, q, k, k,
                                torch.zeros(shape))
        padding = torch.ones(2, 9).int()
        padding[1, :4] = 0
        self.assert_refused("invalid_shape", "(1, 9); required are 2 rows", mask, 2, 3, 9, 6,
                            attention_mask=padding[:1])
        for of in ((4, 3), (2, 2)):
            made = mask(of[0], of[1], 9, 9 - of[1], attention_mask=padding.repeat(of[0] // 2, 1))
            self.assert_refused("invalid_shape", "query has 2 with 3", attention, module, q, k, k, made)
        self.assert_refused("invalid_shape", "s_aux: has the shape (3,)", attention, module, q, k, k,
                            None, s_aux=torch.zeros(3))
        for batch, queries in ((0, 3), (2, 0)):
            made, _ = attention(module, q[:batch, :, :queries], k[:batch], k[:batch, ..., :8], None)
            self.assertEqual(made.shape, (batch, queries, 4, 8))


class Batches(TestCase):
    """generate_batch, whose pages are read where they lie."""

    def test_a_step_that_is_filled_up(self):
        q, k = torch.randn(1, 4, 7, 16), torch.randn(1, 2, 9, 16)
        lengths = {"cu_seq_lens_q": torch.tensor([0, 2, 5]), "cu_seq_lens_k": torch.tensor([0, 3, 9])}
        made, _ = weft.transformers.attention(torch.nn.Module(), q, k, k, None, **lengths)
        self.assertEqual(made[0, 5:].abs().max(), 0)
        for rows, keys in ((slice(0, 2), slice(0, 3)), (slice(2, 5), slice(3, 9))):
            alone, _ = weft.transformers.attention(torch.nn.Module(), q[:, :, rows], k[:, :, keys], k[:, :, keys], None)
            self.assert_close(made[:, rows], alone)

    def generated(self, model, implementation):
        model.set_attn_implementation(implementation)
        config = transformers.GenerationConfig(max_new_tokens=20, do_sample=False, eos_token_id=-1, pad_token_id=0)
        batching = transformers.ContinuousBatchingConfig(num_blocks=32, max_batch_tokens=64, page_size=8)
        made = model.generate_batch([TOKENS[0].tolist(), TOKENS[1, :5].tolist(), TOKENS[1].tolist() * 4],
                                    generation_config=config, continuous_batching_config=batching, progress_bar=False)
        return [made[key].generated_tokens for key in sorted(made)]

    def check(self, model, reads_pages=True):
        kinds = []
        run = weft._transformers.attention._run

        def recorded(*args, **named):
            kinds.append(args[5])
            return run(*args, **named)

        weft._transformers.attention._run = recorded
        try:
            made = self.generated(model, "weft")
        finally:
            weft._transformers.attention._run = run
        self.assertEqual(made, self.generated(model, "paged|eager"))
        self.assertEqual(weft.KvForm.paged in kinds, reads_pages)

    def test_llama(self):
        self.check(model_of("Llama"))

    def test_windows_and_sinks(self):
        self.check(model_of("GptOss", num_local_experts=2, num_experts_per_tok=1, sliding_window=8))


if __name__ == "__main__":
    unittest.main()
