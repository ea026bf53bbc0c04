#!/usr/bin/env python3
"""Converts a llama2.c checkpoint (version 0) and its tokenizer into a GGUF file, all weights F32.

    tools/stories_to_gguf.py stories260K.bin tok512.bin tests/data/stories260K.gguf

The checkpoint: seven int32 (dim, hidden_dim, layers, heads, kv heads, vocabulary, context; a negative vocabulary
says that the head is a matrix of its own), then float32: embedding, attention norms, wq, wk, wv, wo, feed-forward
norms, w1, w2, w3, the last norm, two unused rotary tables, and the head if there is one. The tokenizer: int32 longest
token, then for each token a float32 score, an int32 length and the bytes.
RoPE rotates adjacent pairs there as in GGUF files of architecture llama: no row changes its place.
"""
import argparse
import array
import re
import struct
import sys

U32, F32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
ALIGNMENT = 32
TENSOR_F32 = 0


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def array_of(element_type, items):
    return struct.pack("<IQ", element_type, len(items)) + b"".join(items)


class GgufWriter:
    def __init__(self):
        self.values, self.tensors = [], []

    def value(self, key, value_type, data):
        self.values.append(string(key) + struct.pack("<I", value_type) + data)

    def tensor(self, name, extents, data):
        """extents: innermost first."""
        self.tensors.append((name, extents, data))

    def write(self, path):
        header = struct.pack("<4sIQQ", b"GGUF", 3, len(self.tensors), len(self.values)) + b"".join(self.values)
        offset = 0
        for name, extents, data in self.tensors:
            header += string(name) + struct.pack("<I", len(extents)) + struct.pack(f"<{len(extents)}Q", *extents)
            header += struct.pack("<IQ", TENSOR_F32, offset)
            offset += (len(data) + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        with open(path, "wb") as out:
            out.write(header + bytes(-len(header) % ALIGNMENT))
            for _, _, data in self.tensors:
                out.write(data + bytes(-len(data) % ALIGNMENT))


class Checkpoint:
    """The weights of a llama2.c file, taken in order."""

    def __init__(self, path):
        with open(path, "rb") as file:
            data = file.read()
        names = ("dim", "hidden", "layers", "heads", "kv_heads", "vocab", "context")
        self.config = dict(zip(names, struct.unpack_from("<7i", data)))
        self.tied = self.config["vocab"] > 0
        self.config["vocab"] = abs(self.config["vocab"])
        self.weights = array.array("f")
        self.weights.frombytes(data[28:])
        if sys.byteorder != "little":
            self.weights.byteswap()
        self.at = 0

    def take(self, count):
        part = self.weights[self.at:self.at + count]
        if len(part) != count:
            raise SystemExit(f"checkpoint: {count} weights expected at {self.at}, {len(part)} found")
        self.at += count
        if sys.byteorder != "little":
            part.byteswap()
        return part.tobytes()


def read_tokens(path, count):
    with open(path, "rb") as file:
        data = file.read()
    at, tokens = 4, []
    for _ in range(count):
        score, length = struct.unpack_from("<fi", data, at)
        tokens.append((score, data[at + 8:at + 8 + length]))
        at += 8 + length
    return tokens


def add_tokenizer(gguf, tokens):
    special = {0: (b"<unk>", UNKNOWN), 1: (b"<s>", CONTROL), 2: (b"</s>", CONTROL)}
    texts, types = [], []
    for index, (_, text) in enumerate(tokens):
        if index in special:
            text, kind = special[index]
        else:
            kind = BYTE if re.fullmatch(rb"<0x[0-9A-F]{2}>", text) else NORMAL
        texts.append(string(text.replace(b" ", "\u2581".encode())))
        types.append(struct.pack("<i", kind))
    gguf.value("tokenizer.ggml.model", STRING, string("llama"))
    gguf.value("tokenizer.ggml.tokens", ARRAY, array_of(STRING, texts))
    gguf.value("tokenizer.ggml.scores", ARRAY, array_of(F32, [struct.pack("<f", score) for score, _ in tokens]))
    gguf.value("tokenizer.ggml.token_type", ARRAY, array_of(INT32, types))
    for name, index in (("unknown", 0), ("bos", 1), ("eos", 2)):
        gguf.value(f"tokenizer.ggml.{name}_token_id", U32, struct.pack("<I", index))
    gguf.value("tokenizer.ggml.add_bos_token", BOOL, b"\1")
    gguf.value("tokenizer.ggml.add_eos_token", BOOL, b"\0")


def convert(checkpoint, tokens, name, gguf):
    config = checkpoint.config
    dim, hidden, layers = config["dim"], config["hidden"], config["layers"]
    head_dim = dim // config["heads"]
    kv_dim = config["kv_heads"] * head_dim
    gguf.value("general.architecture", STRING, string("llama"))
    gguf.value("general.name", STRING, string(name))
    gguf.value("general.license", STRING, string("mit"))
    for key, number in (("block_count", layers), ("context_length", config["context"]), ("embedding_length", dim),
                        ("feed_forward_length", hidden), ("attention.head_count", config["heads"]),
                        ("attention.head_count_kv", config["kv_heads"]), ("rope.dimension_count", head_dim),
                        ("vocab_size", config["vocab"])):
        gguf.value(f"llama.{key}", U32, struct.pack("<I", number))
    gguf.value("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5))
    gguf.value("llama.rope.freq_base", F32, struct.pack("<f", 10000.0))
    add_tokenizer(gguf, tokens)

    gguf.tensor("token_embd.weight", (dim, config["vocab"]), checkpoint.take(config["vocab"] * dim))
    # Each kind of weight lies in the checkpoint for all layers together.
    for part, extents in (("attn_norm", (dim,)), ("attn_q", (dim, dim)), ("attn_k", (dim, kv_dim)),
                          ("attn_v", (dim, kv_dim)), ("attn_output", (dim, dim)), ("ffn_norm", (dim,)),
                          ("ffn_gate", (dim, hidden)), ("ffn_down", (hidden, dim)), ("ffn_up", (dim, hidden))):
        count = extents[0] * (extents[1] if len(extents) > 1 else 1)
        for layer in range(layers):
            gguf.tensor(f"blk.{layer}.{part}.weight", extents, checkpoint.take(count))
    gguf.tensor("output_norm.weight", (dim,), checkpoint.take(dim))
    checkpoint.take(config["context"] * head_dim)
    if not checkpoint.tied:
        gguf.tensor("output.weight", (dim, config["vocab"]), checkpoint.take(config["vocab"] * dim))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("tokenizer")
    parser.add_argument("output")
    parser.add_argument("--name", default="stories260K")
    arguments = parser.parse_args()
    checkpoint = Checkpoint(arguments.checkpoint)
    tokens = read_tokens(arguments.tokenizer, checkpoint.config["vocab"])
    gguf = GgufWriter()
    convert(checkpoint, tokens, arguments.name, gguf)
    gguf.write(arguments.output)


if __name__ == "__main__":
    main()
