# SPDX-License-Identifier: Apache-2.0
"""Writes a small random GPT-2 the way Hugging Face's files hold one, and the logits of a plain forward by PyTorch.

    /usr/bin/python3 gpt2_small.py FOLDER      (needs python3-torch; the files beside this script came from 1.13.1)

gpt2_small.safetensors has names without "transformer.", weights of c_* as [in, out] (Conv1D) and the causal masks as
h.N.attn.bias; gpt2_small_logits.safetensors has ids [2, 16] and logits [2, 16, 96] for 3 heads."""
import json
import math
import struct
import sys

import torch
import torch.nn.functional as F

VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH = 96, 24, 2, 3, 24


def parameters(seed):
    torch.manual_seed(seed)
    p = {"wte.weight": torch.randn(VOCABULARY, WIDTH) * 0.3, "wpe.weight": torch.randn(CONTEXT, WIDTH) * 0.2}
    for name in ["h.%d.ln_%d" % (n, k) for n in range(LAYERS) for k in (1, 2)] + ["ln_f"]:
        p[name + ".weight"] = 1 + torch.randn(WIDTH) * 0.2
        p[name + ".bias"] = torch.randn(WIDTH) * 0.2
    for n in range(LAYERS):
        for name, rows, columns in [("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)]:
            p["h.%d.%s.weight" % (n, name)] = torch.randn(rows, columns) * 0.25
            p["h.%d.%s.bias" % (n, name)] = torch.randn(columns) * 0.2
    return p


def forward(p, ids):
    batch, time = ids.shape

    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def conv1d(name, x):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    def heads(x):
        return x.view(batch, time, HEADS, WIDTH // HEADS).transpose(1, 2)

    x = p["wte.weight"][ids] + p["wpe.weight"][:time]
    hidden = torch.triu(torch.ones(time, time, dtype=torch.bool), 1)
    for n in range(LAYERS):
        h = "h.%d." % n
        q, k, v = (heads(y) for y in conv1d(h + "attn.c_attn", norm(h + "ln_1", x)).split(WIDTH, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(hidden, -math.inf)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, WIDTH)
        x = x + conv1d(h + "attn.c_proj", y)
        inner = F.gelu(conv1d(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate="tanh")
        x = x + conv1d(h + "mlp.c_proj", inner)
    return norm("ln_f", x) @ p["wte.weight"].t()


def write(path, tensors):
    dtypes = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": dtypes[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    folder = sys.argv[1]
    p = parameters(5)
    ids = torch.randint(0, VOCABULARY, (2, 16))
    with torch.no_grad():
        write(folder + "/gpt2_small_logits.safetensors", {"ids": ids, "logits": forward(p, ids)})
    for n in range(LAYERS):
        p["h.%d.attn.bias" % n] = torch.tril(torch.ones(CONTEXT, CONTEXT)).view(1, 1, CONTEXT, CONTEXT)
    write(folder + "/gpt2_small.safetensors", p)


if __name__ == "__main__":
    main()
