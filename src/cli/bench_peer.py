# SPDX-License-Identifier: Apache-2.0
# The other side of `belay bench`: the same jobs in PyTorch.  Says "torch VERSION", or "none REASON", and then for each line
# "JOB THREADS STEPS" the seconds of a step.  Threads of the BLAS come from the environment.
import sys
import time


def say(*words):
    print(*words, flush=True)


try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except Exception as problem:
    say("none", " ".join(str(problem).split())[:150])
    sys.exit(0)


class Classifier(nn.Module):
    def __init__(self, rows, embed, hidden, dropout):
        super().__init__()
        self.embedding = nn.Embedding(rows, embed)
        self.lstm = nn.LSTM(embed, hidden, 2, batch_first=True, dropout=dropout)
        self.fc = nn.Linear(hidden, 5)

    def forward(self, ids):
        return self.fc(self.lstm(self.embedding(ids))[1][0][-1])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(c, 2))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.c_proj((weights @ v).transpose(1, 2).reshape(b, t, c))
        # F.gelu knows the form by tanh since 1.12.
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.blocks = nn.ModuleList(Block(768, 12) for _ in range(12))
        self.ln_f = nn.LayerNorm(768)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, 0, 0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def classifier(rows, embed, hidden, dropout, window):
    model = Classifier(rows, embed, hidden, dropout)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    ids, labels = torch.randint(0, rows, (64, 20)), torch.randint(0, 5, (64,))

    def step():
        adam.zero_grad(set_to_none=True)
        for _ in range(window):
            (F.cross_entropy(model(ids), labels) / window).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    return step


def gpt2():
    model = GPT2()
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    text = torch.randint(0, 50257, (4, 65))

    def step():
        adam.zero_grad(set_to_none=True)
        F.cross_entropy(model(text[:, :-1]).view(-1, 50257), text[:, 1:].reshape(-1)).backward()
        adam.step()

    return step


MAKERS = {
    "reference": lambda: classifier(10000, 128, 256, 0.0, 4),
    "demo": lambda: classifier(80, 32, 64, 0.3, 1),
    "gpt2": gpt2,
}
name, run = None, None
say("torch", torch.__version__)
for line in sys.stdin:
    wanted, threads, steps = line.split()
    torch.set_num_threads(int(threads))
    if wanted != name:
        run = None
        name, run = wanted, MAKERS[wanted]()
        run()
    begin = time.perf_counter()
    for _ in range(int(steps)):
        run()
    say((time.perf_counter() - begin) / int(steps))
