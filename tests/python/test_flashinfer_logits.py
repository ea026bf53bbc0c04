"""weft.flashinfer.logits_processor: pipes against the functions of sampling; what does not fit behind one another."""
import math
import unittest

import torch

import weft.flashinfer as fi
from weft.flashinfer.logits_processor import (CompileError, FusionRule, LogitsPipe, LogitsProcessor, MinP, Op, Sample,
                                              Softmax, TaggedTensor, Temperature, TensorType, TopK, TopP)
from support import SEED
from test_flashinfer_functions import FlashInferTestCase

torch.manual_seed(SEED)
LOGITS = torch.randn(6, 90) * 3
PROBS = torch.softmax(LOGITS, 1)


def drawn(seed=3):
    return dict(seed=seed, offset=0)


class Pipes(FlashInferTestCase):
    def test_what_a_pipe_computes(self):
        by, ks = torch.rand(6) + 0.2, torch.tensor([1, 3, 90, 5, 7, 2])
        for compiled in (False, True):
            def pipe(*processors, input_type=None):
                return LogitsPipe(processors, compiled, input_type)
            for temperature in (0.5, by):
                self.assert_close(pipe(Temperature(), Softmax())(LOGITS, temperature=temperature),
                                  fi.softmax(LOGITS, temperature))
            self.assert_close(pipe(Temperature())(LOGITS, temperature=0.5), LOGITS / 0.5)
            for k in (4, ks):
                self.assert_close(pipe(TopK(), input_type=TensorType.PROBS)(PROBS, top_k=k),
                                  fi.top_k_renorm_probs(PROBS, k))
                self.assert_close(pipe(TopK(), input_type=TensorType.LOGITS)(LOGITS, top_k=k),
                                  fi.top_k_mask_logits(LOGITS, k))
            self.assert_close(pipe(TopP())(PROBS, top_p=0.4), fi.top_p_renorm_probs(PROBS, 0.4))
            kept = torch.where(PROBS >= 0.3 * PROBS.amax(1, keepdim=True), PROBS, 0)
            self.assert_close(pipe(MinP())(PROBS, min_p=0.3), kept / kept.sum(1, keepdim=True))
            for processors, given, expected in (
                    ([], {}, fi.sampling_from_probs(PROBS, **drawn())),
                    ([TopK()], dict(top_k=3), fi.top_k_sampling_from_probs(PROBS, 3, **drawn())),
                    ([TopP()], dict(top_p=0.4), fi.top_p_sampling_from_probs(PROBS, 0.4, **drawn())),
                    ([MinP()], dict(min_p=0.4), fi.min_p_sampling_from_probs(PROBS, 0.4, **drawn()))):
                made = pipe(*processors, Sample(), input_type=TensorType.PROBS)(PROBS, **given, **drawn())
                self.assertEqual(made.tolist(), expected.tolist())
            made = pipe(Sample(), input_type=TensorType.LOGITS)(LOGITS, **drawn())
            self.assertEqual(made.tolist(), fi.sampling_from_logits(LOGITS, **drawn()).tolist())

    def test_joint_filters_see_what_comes_in(self):
        """Mass 0.5, 0.3, 0.2: after top-2 the first token has 0.625 of it, and a top_p of 0.6 stops there."""
        probs = torch.tensor([[0.5, 0.3, 0.2]]).repeat(400, 1)
        seen = {}
        for joint in (False, True):
            pipe = LogitsPipe([TopK(joint_topk_topp=joint), TopP(), Sample()], input_type=TensorType.PROBS)
            seen[joint] = set(pipe(probs, top_k=2, top_p=0.6, **drawn()).tolist())
        self.assertEqual(seen, {False: {0}, True: {0, 1}})

    def test_compilation(self):
        pipe = LogitsPipe([Temperature(), Softmax(), TopP(), Sample()])
        self.assertEqual(repr(pipe), "LogitsPipe([Temperature -> Softmax -> TopP -> Sample], ops=[TemperatureOp -> "
                                     "SoftmaxOp -> TopPOp -> ProbsSampleOp], compiled_ops=[FusedTemperatureSoftmaxOp "
                                     "-> FusedProbsTopPSampleOp])")
        self.assertEqual(pipe.initial_type, TensorType.LOGITS)
        self.assertEqual(pipe(TaggedTensor.logits(LOGITS), temperature=0.7, top_p=0.9, **drawn()).tolist(),
                         fi.top_p_sampling_from_probs(fi.softmax(LOGITS, 0.7), 0.9, **drawn()).tolist())

        class HalveOp(Op):
            IN = OUT = TensorType.LOGITS

            def apply(self, x, given):
                return x / 2

        class Halve(LogitsProcessor):
            def legalize(self, input_type):
                return [HalveOp()]

        class QuarterOp(HalveOp):
            def apply(self, x, given):
                return x / 4

        rule = FusionRule((HalveOp, HalveOp), lambda window: True, lambda window: QuarterOp())
        pipe = LogitsPipe([Halve(), Halve(), Halve()], input_type=TensorType.LOGITS, custom_fusion_rules=[rule])
        self.assertEqual([type(op).__name__ for op in pipe.compiled_ops], ["QuarterOp", "HalveOp"])
        self.assert_close(pipe(LOGITS), LOGITS / 8)

        def no_halves(ops):
            raise CompileError("no halves")
        self.assert_invalid("no halves", LogitsPipe, [Halve()], input_type=TensorType.LOGITS,
                            custom_validity_checks=[no_halves])

    def test_refusals(self):
        self.assert_invalid("cannot be empty", LogitsPipe, [])
        self.assert_invalid("Pipeline creation failed: Cannot infer input type: TopK", LogitsPipe, [TopK()])
        self.assert_invalid(r"processor 1 \(Temperature\): Temperature can only be applied to LOGITS, got PROBS",
                            LogitsPipe, [Softmax(), Temperature()])
        self.assert_invalid(r"Failed to legalize processor 1 \(TopP\)", LogitsPipe,
                            [Sample(), TopP()], input_type=TensorType.PROBS)
        self.assert_invalid(r"Failed to legalize processor 1 \(Softmax\)", LogitsPipe, [Softmax(), Softmax()])
        pipe = LogitsPipe([Temperature(), Softmax()], compile=False)
        for value in (1, 0.0, -1.0, "x", True):
            self.assert_invalid(r"Error executing operator 0 \(TemperatureOp\): temperature = ", pipe, LOGITS,
                                temperature=value)
        self.assert_invalid("temperature is missing", pipe, LOGITS)
        self.assert_invalid("takes LOGITS, got PROBS", pipe, TaggedTensor.probs(PROBS), temperature=1.0)
        for processor, name, values in ((TopK(), "top_k", (0, -1, 2.0, True)), (TopP(), "top_p", (0.0, 1.5, "x")),
                                        (MinP(), "min_p", (0, 2, math.nan))):
            for value in values:
                self.assert_invalid(f"{name} = ", LogitsPipe([processor], input_type=TensorType.PROBS), PROBS,
                                    **{name: value})


if __name__ == "__main__":
    unittest.main()
