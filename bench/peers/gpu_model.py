"""Decode of a whole model in gpt-fast's form: a static cache, torch.compile with CUDA graphs, bf16, random weights."""
import statistics
import time

import torch
import torch.nn.functional as F

from gpu_rows import line

NAME = "torch.compile, as gpt-fast"
# layers, hidden size, query heads, KV heads, head dim, intermediate size, vocabulary: of Llama 3.1 8B and 3.2 1B
SHAPES = {"8b": (32, 4096, 32, 8, 128, 14336, 128256), "1b": (16, 2048, 32, 8, 64, 8192, 128256)}
STEPS = 32


def random(*shape, scale=1.0):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * scale


class Model(torch.nn.Module):
    def __init__(self, shape, context):
        super().__init__()
        self.shape, self.context = shape, context
        layers, hidden, q, kv, dim, intermediate, vocabulary = shape
        self.embedding = random(vocabulary, hidden)
        self.head = random(vocabulary, hidden, scale=hidden ** -0.5)
        self.norms = torch.ones(2 * layers + 1, hidden, device="cuda", dtype=torch.bfloat16)
        self.layers = [(random((q + 2 * kv) * dim, hidden, scale=hidden ** -0.5), random(hidden, q * dim, scale=hidden ** -0.5),
                        random(2 * intermediate, hidden, scale=hidden ** -0.5),
                        random(hidden, intermediate, scale=intermediate ** -0.5)) for _ in range(layers)]
        self.keys, self.values = random(layers, 1, kv, context, dim), random(layers, 1, kv, context, dim)
        angles = torch.outer(torch.arange(context, device="cuda"),
                             1 / 500000 ** (torch.arange(0, dim, 2, device="cuda") / dim))
        self.cos, self.sin = angles.cos(), angles.sin()

    def weight_bytes(self):
        """That a step reads."""
        return 2 * (self.head.numel() + sum(weight.numel() for layer in self.layers for weight in layer))

    def kv_bytes_per_token(self):
        layers, _, _, kv, dim, _, _ = self.shape
        return 4 * layers * kv * dim

    def norm(self, x, i):
        x = x.float()
        return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5)).bfloat16() * self.norms[i]

    def rotate(self, x, at):
        a, b = x.float().chunk(2, -1)
        cos, sin = self.cos[at], self.sin[at]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).bfloat16()

    def forward(self, token, at):
        layers, _, heads, kv_heads, dim, _, _ = self.shape
        x = self.embedding[token]
        mask = (torch.arange(self.context, device="cuda") <= at)[None, None, None, :]
        for i, (qkv, output, gate_up, down) in enumerate(self.layers):
            q, k, v = F.linear(self.norm(x, 2 * i), qkv).split([heads * dim, kv_heads * dim, kv_heads * dim], -1)
            self.keys[i].index_copy_(2, at, self.rotate(k.view(1, kv_heads, dim), at).view(1, kv_heads, 1, dim))
            self.values[i].index_copy_(2, at, v.view(1, kv_heads, 1, dim))
            group = heads // kv_heads
            attended = F.scaled_dot_product_attention(
                self.rotate(q.view(1, heads, dim), at).view(1, heads, 1, dim),
                self.keys[i].repeat_interleave(group, 1), self.values[i].repeat_interleave(group, 1), attn_mask=mask)
            x = x + F.linear(attended.view(1, heads * dim), output)
            gate, up = F.linear(self.norm(x, 2 * i + 1), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(self.norm(x, 2 * layers), self.head).argmax(-1)


def measure(shape, context, ceilings):
    """Lines of one shape after so many tokens."""
    with torch.no_grad():
        model = Model(SHAPES[shape], context + STEPS + 8)
        step = torch.compile(model, mode="reduce-overhead", fullgraph=True)
        places = [torch.tensor([context + i], device="cuda") for i in range(STEPS)]
        token = torch.zeros(1, dtype=torch.long, device="cuda")
        for place in places[:4]:
            token = step(token, place).clone()
        readings = []
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for place in places:
                token = step(token, place).clone()
            torch.cuda.synchronize()
            readings.append((time.perf_counter() - begin) / STEPS)
    seconds = statistics.median(readings)
    rate = ceilings.read_rate(model.weight_bytes()) / (model.weight_bytes() + model.kv_bytes_per_token() * context)
    case = f"{shape} bf16 random decode batch1 ctx{context}"
    return [line(case, "speed", 1 / seconds, "tok/s", rate, "model"), line(case, "step", seconds * 1e6, "us", None, "model")]
