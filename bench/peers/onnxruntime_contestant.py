"""onnxruntime's part in the comparison: GroupQueryAttention, MatMulNBits and MatMul, one node a graph."""
import itertools

import numpy
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from protocol import Refused, mean_seconds, serve

TYPES = {"fp32": (TensorProto.FLOAT, numpy.float32), "fp16": (TensorProto.FLOAT16, numpy.float16),
         "bf16": (TensorProto.BFLOAT16, None)}  # numpy has no bf16, and so far no session either
CAP = 30.0


def random_array(dtype, *shape):
    """One block of random numbers, again and again: a large cache must fill quickly."""
    block = numpy.random.default_rng(1).standard_normal(1 << 20, dtype=numpy.float32).astype(dtype)
    return numpy.resize(block, shape)


def make_session(node, inputs, outputs, threads, weights=()):
    """weights: (name, array), constants of the graph, which the session may pack."""
    values = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    graph = helper.make_graph([node], "one_node", *values,
                              initializer=[numpy_helper.from_array(array, name) for name, array in weights])
    versions = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def in_turn(calls, in_place=()):
    """A reading that takes the next of (session, feed) at every call. in_place: outputs in an input's memory."""
    bindings = []
    for session, feed in calls:
        binding = session.io_binding()
        values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in feed.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for output in session.get_outputs():
            if output.name in dict(in_place):
                binding.bind_ortvalue_output(output.name, values[dict(in_place)[output.name]])
            else:
                binding.bind_output(output.name, "cpu")
        bindings.append((session, binding, values))
    turn = itertools.cycle(bindings)

    def once():
        session, binding, _ = next(turn)
        session.run_with_iobinding(binding)

    once()
    return lambda: mean_seconds(once)


def attention(row):
    element, array = TYPES[row["dtype"]]
    batch, qo_len, kv_len, head_dim = row["batch"], row["qo_len"], row["kv_len"], row["head_dim"]
    qo_heads, kv_heads = row["qo_heads"], row["kv_heads"]
    decode = qo_len == 1
    node = helper.make_node("GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "lengths", "total"],
                            ["o", "present_k", "present_v"], domain="com.microsoft", name="attention", num_heads=qo_heads,
                            kv_num_heads=kv_heads, softcap=CAP if row.get("soft_cap") else 0.0)
    cache = [batch, kv_heads, kv_len if decode else "past", head_dim]
    present = [batch, kv_heads, kv_len, head_dim]
    session = make_session(
        node,
        [("q", element, [batch, qo_len, qo_heads * head_dim]), ("k", element, [batch, qo_len, kv_heads * head_dim]),
         ("v", element, [batch, qo_len, kv_heads * head_dim]), ("past_k", element, cache), ("past_v", element, cache),
         ("lengths", TensorProto.INT32, [batch]), ("total", TensorProto.INT32, [])],
        [("o", element, [batch, qo_len, qo_heads * head_dim]), ("present_k", element, present),
         ("present_v", element, present)], row["threads"])
    past = (batch, kv_heads, kv_len if decode else 0, head_dim)
    feeds = [{"q": random_array(array, batch, qo_len, qo_heads * head_dim),
              "k": random_array(array, batch, qo_len, kv_heads * head_dim),
              "v": random_array(array, batch, qo_len, kv_heads * head_dim),
              "past_k": random_array(array, *past), "past_v": random_array(array, *past),
              "lengths": numpy.full(batch, kv_len - 1, numpy.int32), "total": numpy.array(kv_len, numpy.int32)}
             for _ in range(row["copies"])]
    # Decode in place: without that the whole cache is copied at every call.
    return in_turn([(session, feed) for feed in feeds], (("present_k", "past_k"), ("present_v", "past_v")) if decode else ())


def linear(row):
    rows, cols, m, block = row["rows"], row["cols"], row["m"], 32
    if row["weights"] == "bf16":
        node = helper.make_node("MatMul", ["x", "w"], ["y"], name="linear")
        make_session(node, [("x", TensorProto.BFLOAT16, [m, cols]), ("w", TensorProto.BFLOAT16, [cols, rows])],
                     [("y", TensorProto.BFLOAT16, [m, rows])], row["threads"])
        raise Refused("numpy has no bf16 to feed it")
    # accuracy_level 4: activations become int8, as in every other contestant's fast way.
    node = helper.make_node("MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft", K=cols, N=rows, bits=4,
                            block_size=block, accuracy_level=4)
    bits = numpy.random.default_rng(1)
    weights = (("w", bits.integers(0, 256, (rows, cols // block, block // 2), numpy.uint8)),
               ("scales", numpy.full(rows * (cols // block), 2.0**-7, numpy.float32)))
    inputs, outputs = [("x", TensorProto.FLOAT, [m, cols])], [("y", TensorProto.FLOAT, [m, rows])]
    x = random_array(numpy.float32, m, cols)
    return in_turn([(make_session(node, inputs, outputs, row["threads"], weights), {"x": x})
                    for _ in range(row["copies"])])


def prepare(row):
    if row["kind"] == "attention":
        return attention(row)
    if row["kind"] == "linear":
        return linear(row)
    raise Refused("onnxruntime is measured with attention and linear layers")


if __name__ == "__main__":
    serve(prepare)
