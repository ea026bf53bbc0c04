"""Model files, tokenizers, forward passes and the engine from Python."""
import pathlib
import sys
import threading
import unittest

import numpy as np

import weft
from support import MODEL, TestCase


class Files(TestCase):
    def test_files_and_tokenizers(self):
        file = weft.ModelFile(pathlib.Path(MODEL))
        self.assertEqual(file.config.architecture, "llama")
        self.assertEqual(file.path, weft.ModelFile(str(MODEL)).path)
        self.assertIn("general.architecture", file)
        self.assertEqual(file.metadata("general.architecture"), "llama")
        self.assertEqual(file.metadata("llama.block_count"), file.config.num_layers)
        self.assert_refused("invalid_file", "nothing.here", file.metadata, "nothing.here")
        weight = file.weight("token_embd.weight")
        rows = file.read(weight, 2, 5)
        self.assertEqual(rows.shape[0], 3)
        self.assertTrue((rows.numpy() == file.read(weight).numpy()[2:5]).all())
        self.assert_refused("invalid_argument", "rows", file.read, weight, 5, 2)
        self.assert_refused("io_error", "", weft.ModelFile, "/nowhere.gguf")
        tokenizer = weft.Tokenizer(file)
        ids = tokenizer.encode("Once upon a time")
        self.assertEqual(tokenizer.decode(ids).strip(), "Once upon a time")
        self.assertEqual(tokenizer.decode_bytes(np.array(ids, np.int32)).strip(), b"Once upon a time")
        self.assert_refused("invalid_token", "", tokenizer.decode, [10**6])
        self.assert_refused("context_full", "", tokenizer.encode, "Once upon a time", at_most=2)
        with self.assertRaises(TypeError):
            tokenizer.encode(b"bytes")

    def test_chat_templates(self):
        template = weft.ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
        messages = [{"role": "user", "content": "Grüß Gott"}]
        self.assertEqual(template.render({"messages": messages}), "<user>Grüß Gott")
        self.assertEqual(template.render('{"messages": []}'), "")
        self.assert_refused("invalid_template", "", weft.ChatTemplate, "{% for %}")


class Forward(TestCase):
    def setUp(self):
        self.file = weft.ModelFile(MODEL)
        self.tokenizer = weft.Tokenizer(self.file)
        self.ids = self.tokenizer.encode("Once upon a time there was")

    def test_prefill_and_decode_agree(self):
        seen = []
        forward = weft.ForwardPass(self.file, precision=weft.Precision.exact, max_tokens=512, max_sequences=4,
                                   on_load=seen.append)
        self.assertTrue(seen and seen[-1] == 1)
        whole = forward.add_sequence()
        logits = forward.run([weft.Input(whole, self.ids, logit_rows=len(self.ids))])
        self.assertEqual(logits.shape, (len(self.ids), self.file.config.vocab_size))
        step = forward.add_sequence()
        forward.run([weft.Input(step, self.ids[:-1])])
        fork = forward.fork(step, len(self.ids) - 1)
        last = forward.run([weft.Input(step, self.ids[-1:]), weft.Input(fork, self.ids[-1:])])
        self.assert_close(last.numpy()[0], logits.numpy()[-1], 1e-3)
        self.assertTrue((last.numpy()[0] == last.numpy()[1]).all())
        self.assertEqual(forward.length(step), len(self.ids))
        free = forward.num_free_pages
        forward.release(whole)
        self.assertGreater(forward.num_free_pages, free)
        self.assert_refused("invalid_argument", "", forward.length, whole)
        self.assert_refused("invalid_token", "", forward.run, [weft.Input(step, [10**6])])
        shared = [forward.fork(step, 4) for _ in range(2)]
        inputs = [weft.Input(sequence, self.ids[:2]) for sequence in shared]
        found = forward.run(inputs).numpy()
        for sequence in shared:
            forward.truncate(sequence, 4)
        again = forward.run(inputs, parent=[], num_pages=[], node_of_input=[-1, -1]).numpy()  # nothing in common
        self.assert_close(again, found, 1e-3)
        kept = logits.numpy().copy()
        forward.run([weft.Input(step, self.ids[:3])])
        self.assertTrue((kept == logits.numpy()).all())  # memory of its own

    def test_exceptions_of_callbacks_come_through(self):
        def on_load(fraction):
            raise KeyError("stop here")

        with self.assertRaisesRegex(KeyError, "stop here"):
            weft.ForwardPass(self.file, on_load=on_load)
        self.assert_refused("invalid_argument", "max_tokens", weft.ForwardPass, self.file, max_tokens=-1)

    def test_the_model_outlives_its_name(self):
        forward = weft.ForwardPass(weft.ModelFile(MODEL), team=weft.WorkerTeam(1))
        self.assertEqual(forward.run([weft.Input(forward.add_sequence(), self.ids)]).shape[0], 1)


class Serving(TestCase):
    def setUp(self):
        self.file = weft.ModelFile(MODEL)
        self.tokenizer = weft.Tokenizer(self.file)

    def engine(self, **more):
        return weft.serve.Engine(self.file, self.tokenizer, kv_tokens=2048, max_running=4, **more)

    def request(self, **more):
        return weft.serve.Request(prompt=self.tokenizer.encode("Once upon a time"), max_tokens=8,
                                  sampling=weft.SamplingParams(temperature=0.0)).replace(**more)

    def test_answers(self):
        engine = self.engine()
        texts, ends = {}, []

        def on_update(update):
            texts[update.request] = texts.get(update.request, "") + update.text
            if update.last:
                ends.append((update.finish, update.output_tokens))

        for _ in range(3):
            engine.submit(self.request(), on_update)
        while engine.step():
            pass
        self.assertEqual(ends, [("length", 8)] * 3)
        self.assertEqual(len(set(texts.values())), 1)
        self.assertEqual(engine.stats().requests_finished, 3)
        self.assertEqual(engine.stats().time_to_first_token.count, 3)
        self.assertEqual(engine.view().requests, [])
        engine.check_queue()
        self.assert_refused("invalid_argument", "prompt", engine.submit, weft.serve.Request(), on_update)

    def test_a_thread_that_runs_and_one_that_submits(self):
        engine = self.engine()
        runner = threading.Thread(target=engine.run)
        runner.start()
        done = threading.Event()
        engine.submit(self.request(), lambda update: done.set() if update.last else None)
        self.assertTrue(done.wait(60))
        engine.stop()
        runner.join()

    def test_exceptions_of_updates_go_to_the_hook(self):
        engine, caught = self.engine(), []
        hook, sys.unraisablehook = sys.unraisablehook, caught.append

        def on_update(update):
            raise ValueError("from an update")

        try:
            engine.submit(self.request(), on_update)
            while engine.step():
                pass
        finally:
            sys.unraisablehook = hook
        kinds = {type(x.exc_value) for x in caught}
        caught.clear()  # their tracebacks hold this frame
        self.assertEqual(kinds, {ValueError})
        self.assertEqual(engine.stats().requests_finished, 1)


if __name__ == "__main__":
    unittest.main()
