#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A text classifier in plain PyTorch, for the test that a checkpoint goes both ways.

  torch_model.py load CHECKPOINT IDS LOGITS    loads by parameter name, writes its logits for the ids
  torch_model.py make KIND CHECKPOINT IDS LOGITS    writes random weights and their logits

IDS and LOGITS are raw int64 and float32.  Ends with 77 where PyTorch is not installed.  The file format is read and
written here by hand."""
import json
import struct
import sys

try:
    import torch
except ImportError:
    sys.exit(77)

SEQ, CLASSES, VOCABULARY, EMBED, HIDDEN, LAYERS = 6, 3, 20, 5, 7, 2


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, EMBED, padding_idx=0)
        self.lstm = torch.nn.LSTM(EMBED, HIDDEN, num_layers=LAYERS, batch_first=True, dropout=0.25)
        self.fc = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, ids):
        _, (h_n, _) = self.lstm(self.embedding(ids))
        return self.fc(h_n[-1])


class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, EMBED, padding_idx=0)
        self.hidden = torch.nn.Linear(EMBED, HIDDEN)
        self.fc = torch.nn.Linear(HIDDEN, CLASSES)

    def forward(self, ids):
        is_token = (ids != 0).unsqueeze(-1)
        mean = (self.embedding(ids) * is_token).sum(1) / is_token.sum(1).clamp(min=1)
        return self.fc(torch.tanh(self.hidden(mean)))


KINDS = {"lstm": Lstm, "mean": Mean}


def read(path):
    with open(path, "rb") as file:
        n = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(n))
        data = file.read()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32", name
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32).reshape(entry["shape"])
    return metadata, tensors


def write(path, metadata, tensors):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def logits(model, ids_path, logits_path):
    with open(ids_path, "rb") as file:
        ids = torch.frombuffer(bytearray(file.read()), dtype=torch.int64).reshape(-1, SEQ)
    model.eval()
    with torch.no_grad(), open(logits_path, "wb") as file:
        file.write(model(ids).contiguous().numpy().tobytes())


def main():
    torch.manual_seed(3)
    if sys.argv[1] == "load":
        metadata, tensors = read(sys.argv[2])
        model = KINDS[json.loads(metadata["belay.model"])["model"]]()
        model.load_state_dict(tensors, strict=True)
        logits(model, sys.argv[3], sys.argv[4])
        return
    kind, path = sys.argv[2], sys.argv[3]
    model = KINDS[kind]()
    description = {"model": kind, "n_tokens": VOCABULARY, "classes": CLASSES, "seq": SEQ, "embed": EMBED,
                   "hidden": HIDDEN, "layers": LAYERS, "dropout": 0.25, "mean_all": False}
    write(path, {"format": "pt", "belay.model": json.dumps(description)}, model.state_dict())
    logits(model, sys.argv[4], sys.argv[5])


main()
