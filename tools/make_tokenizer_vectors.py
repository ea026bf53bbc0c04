#!/usr/bin/env python3
"""Writes tests/data/tokenizers: packed vocabularies, and texts with the ids that independent implementations give.

    pip install tokenizers sentencepiece gguf
    tools/make_tokenizer_vectors.py --gpt2 VOCAB.gguf --qwen2 TOKENIZER.json --smollm MODEL.gguf --spm tok512.bin \
        --given VECTORS.jsonl OUT_DIR

A packed vocabulary (.bpe) is one line of JSON, then the merges as pairs of little-endian ids, `width` bytes each. All
tokens follow from it: `special` ones by id, the bytes of the byte-level alphabet from `first_byte` in the order of
their characters without `missing_bytes`, and from `first_merge` the results of the merges in order.
"""
import argparse
import json
import pathlib
import random
import struct

from gguf import GGUFReader
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

CONTROL, USER_DEFINED = 3, 4
LLAMA_BPE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "it's they're WE'LL I'D you've i'm don't x's' 's 't''ll",
    "tabs\tand\t\tmore\t 1\t22\t 333",
    "line\r\nline\r\n\r\n  indented\r\n\t\tmore\n\n\n   \n x",
    "no-break\u00a0space, thin\u2009space,\u3000ideographic, nel\u0085x, mvs a\u180eb, zwsp a\u200bb, bom \ufeffx",
    "½ ⅷ ٣٤٥ १२३ 12³ x² 3.14159 1,000,000 0xdeadbeef 1e-9 2024-07-26T12:34:56Z",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * c[i]; }  // done\n",
    "def f(x):\n    return x ** 2  # squares\n\n\nprint(f(12))\n",
    "<|im_start|>user\nHello<|im_end|>\n<|endoftext|>",
    "日本語のテキストと漢字、カタカナ。한국어 텍스트도 있습니다. ไทยไม่มีช่องว่าง עברית العربية",
    "naïve café résumé Ærøskøbing Straße ŁÓDŹ İstanbul ǅ ﬁ",
    "👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 ☺️ ✌",
    "... !!! ?!?! --- ___ *** ### $$$ %%% @@@ ^^^ &&& ((( ))) [[[ ]]] {{{ }}} <<< >>> ||| \\\\\\ /// ~~~ ``` ''' \"\"\"",
    "a" * 200,
    "ab" * 150 + " " + "xyz" * 60,
    " " * 70 + "x" + " " * 33,
    "\n" * 40 + " \n" * 9,
    "supercalifragilisticexpialidocious antidisestablishmentarianism Donaudampfschifffahrtsgesellschaftskapitän",
    "'S 'T 'RE 'VE 'M 'LL 'D ' s",
    "mixed1digits2in3words4567and89_under_scores-with-dashes",
    "\x01\x02\x7f\x1b[31mred\x1b[0m \x1c\x1d\x1e\x1f",
    "\U00010348 \U0001d4d0 \U0002f81a",
    "▁ already marked ▁▁text",
    "trailing space ",
    "\u0301combining e\u0301 a\u0300\u0301",
    # Bytes that SmolLM2 has no token for, between others that merge; the last is a word of more than 48 bytes.
    "a \x04| b \x06' \x13\u200b !\x14= .\x16.\x1d. \U00040000\U000c0000\U0010ffff",
    "=\x04" * 60 + "\x04",
    " \x04▁ \x1d\x06▁",
    "llll lllll xlll ooooo eeeee ttttt",  # merges of equal score or rank: the leftmost first
]
ALPHABETS = ["abcdefgh", " ", "  \t\n\r", "0123456789", "'sStTmMlLdDrReEvV", ".,;:!?-_()[]{}<>/\\|@#$%^&*+=~`\"'", "éßñøÅ",
             "日本語漢字", "кириллица", "٣٤½²", "🙂🚀\u200d\ufe0f", "\u00a0\u2009\u3000\u0085\u180e\u200b", "▁"]


def random_texts(count, seed):
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 14)):
            alphabet = rng.choice(ALPHABETS)
            parts.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 5))))
        texts.append("".join(parts))
    return texts


def byte_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def read_gguf(path):
    fields = GGUFReader(path).fields
    key = lambda name: fields["tokenizer.ggml." + name].contents()
    return key("tokens"), key("token_type"), key("merges"), {n: key(n + "_token_id") for n in ("bos", "eos")}


def read_hf(path):
    tokenizer = json.load(open(path, encoding="utf-8"))
    vocab = tokenizer["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    types = [1] * len(tokens)
    for added in tokenizer["added_tokens"]:
        assert added["id"] == len(tokens)
        tokens.append(added["content"])
        types.append(CONTROL if added["special"] else USER_DEFINED)
    merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    return tokens, types, merges, {n: tokens.index(t) for n, t in (("bos", "<|endoftext|>"), ("eos", "<|im_end|>"))}


def pack(path, pre, tokens, types, merges, ids):
    index = {t: i for i, t in enumerate(tokens)}
    alphabet = byte_alphabet()
    present = sorted((c, b) for b, c in alphabet.items() if c in index)
    first_byte = index[present[0][0]]
    assert [index[c] for c, _ in present] == list(range(first_byte, first_byte + len(present)))
    pairs = [tuple(index[t] for t in m.split(" ")) for m in merges]
    first_merge = first_byte + len(present)
    assert [tokens[l] + tokens[r] for l, r in pairs] == tokens[first_merge:first_merge + len(pairs)]
    special = [[i, t, types[i]] for i, t in enumerate(tokens) if not first_byte <= i < first_merge + len(pairs)]
    width = 2 if len(tokens) <= 65536 else 3
    header = {"pre": pre, "tokens": len(tokens), "first_byte": first_byte, "first_merge": first_merge,
              "missing_bytes": [b for b, c in alphabet.items() if c not in index], "merges": len(pairs), "width": width,
              **ids, "special": special}
    data = b"".join(i.to_bytes(width, "little") for pair in pairs for i in pair)
    path.write_bytes(json.dumps(header, ensure_ascii=False).encode() + b"\n" + data)


def build_hf(tokens, types, merges, splitter, ignore_merges=False):
    vocab = {t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges], ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = splitter
    added = [{"id": i, "content": t, "special": types[i] == CONTROL, "lstrip": False, "rstrip": False,
              "single_word": False, "normalized": False} for i, t in enumerate(tokens) if types[i] != 1]
    return Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "added_tokens": added}))


def split_pattern(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def build_sentencepiece(path):
    data = path.read_bytes()
    model = sentencepiece_model_pb2.ModelProto()
    at = 4
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        text = data[at + 8:at + 8 + length].decode()
        at += 8 + length
        index = len(model.pieces)
        piece = model.pieces.add()
        piece.score = score
        if index < 3:
            piece.piece, piece.type = ["<unk>", "<s>", "</s>"][index], 2 if index == 0 else 3
        elif index < 259:
            piece.piece, piece.type = text, 6
        else:
            piece.piece, piece.type = text.replace(" ", "\u2581"), 1
    model.trainer_spec.model_type = 2
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(model.pieces)
    model.trainer_spec.unk_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 0, 1, 2
    model.trainer_spec.pad_id = -1
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = False
    model.normalizer_spec.escape_whitespaces = True
    return SentencePieceProcessor(model_proto=model.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gpt2", "qwen2", "smollm", "spm", "given"):
        parser.add_argument("--" + name, type=pathlib.Path, required=True)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()

    rows = [json.loads(line) for line in open(args.given, encoding="utf-8")]
    given = [row["text"] for row in rows if row["tokenizer"] == "gpt-2"]
    for row in rows:
        row["origin"] = "given"
    gpt2, qwen2, smollm = read_gguf(args.gpt2), read_hf(args.qwen2), read_gguf(args.smollm)
    pack(args.out / "gpt-2.bpe", "gpt-2", *gpt2)
    pack(args.out / "qwen2.bpe", "qwen2", *qwen2)
    pack(args.out / "smollm.bpe", "smollm", *smollm)
    (args.out / "tok512.bin").write_bytes(args.spm.read_bytes())

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    qwen_pattern = LLAMA_BPE.replace("{1,3}", "")
    hf = {
        "gpt-2": (build_hf(*gpt2[:3], byte_level), "tokenizers"),
        "smollm": (build_hf(*smollm[:3], digits), "tokenizers"),
        "qwen2": (build_hf(*qwen2[:3], split_pattern(qwen_pattern)), "tokenizers"),
        # No file of the Llama 3 family is here: its pattern and whole-word rule over Qwen's vocabulary.
        "llama-bpe": (build_hf(*qwen2[:3], split_pattern(LLAMA_BPE), ignore_merges=True), "tokenizers"),
    }
    texts = TEXTS + random_texts(120, 7)
    for name, (tokenizer, origin) in hf.items():
        own = texts if name in ("gpt-2", "qwen2") else given + texts
        for text in own:
            rows.append({"tokenizer": name, "text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids,
                         "origin": origin})
    sentencepiece = build_sentencepiece(args.spm)
    for text in given + texts:
        if "▁" not in text:   # the mark itself is not kept apart from a space by either side
            rows.append({"tokenizer": "spm", "text": text, "ids": sentencepiece.encode(text), "origin": "sentencepiece"})
    with open(args.out / "vectors.jsonl", "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
