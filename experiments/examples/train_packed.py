#!/usr/bin/env python3
"""Trains a small model on the CPU twice, on planned packs and on whole samples one by one: losses
are equal, as packs and slices change who computes when and nothing else.

The model has one layer of causal attention. A slice reads keys and values of its sample's earlier
slices; its backward adds to their gradients, so that backward packs run from a sample's end to its
beginning. Needs NumPy and the package slimpack.

    train_packed.py --strategy slimpack --steps 8
"""
import argparse

import numpy as np

import slimpack

VOCABULARY, WIDTH, RATE = 61, 24, 0.5
SCENARIO = {"model": "llama-7b", "cluster": "h800-8", "parallel": {"tp": 2, "pp": 2, "dp": 2},
            "workload": {"context": 2048, "lengths": [2048], "samples_per_batch": 12}}


class Model:
    """Weights, and for the samples in flight what their slices leave for each other."""

    def __init__(self, seed):
        draw = np.random.default_rng(seed)
        self.weights = {"embed": draw.normal(0, 0.5, (VOCABULARY, WIDTH)),
                        "head": draw.normal(0, 0.2, (WIDTH, VOCABULARY)),
                        **{name: draw.normal(0, WIDTH ** -0.5, (WIDTH, WIDTH)) for name in "qkvo"}}
        self.begin_step()

    def begin_step(self):
        self.gradients = {name: np.zeros_like(value) for name, value in self.weights.items()}
        self.loss, self.labels = 0.0, 0
        self._kv = {}  # sample: [keys, values, their gradients], each [positions so far, WIDTH]
        self._saved = {}  # (sample, begin): what the backward of a slice needs

    def forward(self, sample, begin, tokens, labels):
        """A slice: tokens and labels [n], of which those below 0 are ignored."""
        w, end = self.weights, begin + len(tokens)
        angle = np.arange(begin, end)[:, None] / 100.0 ** (np.arange(WIDTH) / WIDTH)
        x = w["embed"][tokens] + np.sin(angle)
        q = x @ w["q"]
        kv = self._kv.setdefault(sample, [np.zeros((0, WIDTH))] * 4)
        assert len(kv[0]) == begin, "a slice ran before an earlier one of its sample"
        kv[0], kv[1] = np.vstack([kv[0], x @ w["k"]]), np.vstack([kv[1], x @ w["v"]])
        kv[2], kv[3] = np.zeros_like(kv[0]), np.zeros_like(kv[1])
        scores = q @ kv[0].T / WIDTH ** 0.5
        scores[np.arange(end)[None, :] > np.arange(begin, end)[:, None]] = -np.inf
        a = np.exp(scores - scores.max(axis=1, keepdims=True))
        a /= a.sum(axis=1, keepdims=True)
        mixed = a @ kv[1]
        h = x + mixed @ w["o"]
        logits = h @ w["head"]
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        at = np.flatnonzero(labels >= 0)
        self.loss -= np.log(p[at, labels[at]]).sum()
        self.labels += len(at)
        p[at, labels[at]] -= 1.0
        p[labels < 0] = 0.0
        self._saved[sample, begin] = tokens, x, q, a, mixed, h, p

    def backward(self, sample, begin):
        """The gradients of a slice, once those of all later slices of its sample are there."""
        w, g = self.weights, self.gradients
        tokens, x, q, a, mixed, h, dlogits = self._saved.pop((sample, begin))
        keys, values, dkeys, dvalues = self._kv[sample]
        end = begin + len(tokens)
        g["head"] += h.T @ dlogits
        dh = dlogits @ w["head"].T
        g["o"] += mixed.T @ dh
        dmixed = dh @ w["o"].T
        dvalues[:end] += a.T @ dmixed
        da = dmixed @ values[:end].T
        dscores = a * (da - (da * a).sum(axis=1, keepdims=True)) / WIDTH ** 0.5
        dkeys[:end] += dscores.T @ q
        dq, dk, dv = dscores @ keys[:end], dkeys[begin:end], dvalues[begin:end]
        dx = dh + dq @ w["q"].T + dk @ w["k"].T + dv @ w["v"].T
        for name, d in (("q", dq), ("k", dk), ("v", dv)):
            g[name] += x.T @ d
        np.add.at(g["embed"], tokens, dx)

    def end_step(self):
        """Mean loss of the labels; one step of gradient descent on it."""
        assert not self._saved, "slices without a backward"
        for name, gradient in self.gradients.items():
            self.weights[name] -= RATE / self.labels * gradient
        loss = self.loss / self.labels
        self.begin_step()
        return loss


def rows_of(batches, pack, dataset):
    """Tokens and labels of a pack, each [rows], put together from what each rank holds of it."""
    tokens, labels = np.zeros(pack.rows, int), np.zeros(pack.rows, int)
    for rank in pack.ranks:
        share = next(p for p in batches[rank] if p.number == pack.number)
        values = dataset[share]
        at = np.array([row for begin, end in share.ranges for row in range(begin, end)], int)
        tokens[at], labels[at] = values["tokens"], values["labels"]
    return tokens, labels


def train_packs(model, batches, dataset):
    """A step: `batches` has the PlannedBatch of each data-parallel rank. A pack that ranks share
    runs once, on the rows of them all: in a job they exchange keys and values."""
    for rank, batch in enumerate(batches):
        for pack in batch:
            if pack.ranks[0] == rank:
                tokens, labels = rows_of(batches, pack, dataset)
                for part, begin in zip(pack.slices, pack.cu_seqlens):
                    rows = np.s_[begin:begin + part.tokens]
                    model.forward(part.sample, part.begin, tokens[rows], labels[rows])
    for rank, batch in enumerate(batches):
        for pack in batch.backward:
            if pack.ranks[0] == rank:
                for part in sorted(pack.slices, key=lambda part: -part.begin):
                    model.backward(part.sample, part.begin)
    return model.end_step()


def train_whole(model, samples, documents):
    """The same step, a sample at a time."""
    for sample in samples:
        tokens = documents[sample]
        model.forward(sample, 0, tokens, np.append(tokens[1:], -100))
        model.backward(sample, 0)
    return model.end_step()


def random_documents(count, context, seed):
    """Each token follows from the one before it, three times in four."""
    draw = np.random.default_rng(seed)
    documents = []
    for length in np.minimum(context, draw.lognormal(5.0, 1.5, count).astype(int) + 2):
        tokens = draw.integers(0, VOCABULARY, length)
        for i in range(1, length):
            if draw.random() < 0.75:
                tokens[i] = (7 * tokens[i - 1] + 3) % VOCABULARY
        documents.append(tokens)
    return documents


def main():
    parser = argparse.ArgumentParser(description="Train on packs and on whole samples.")
    parser.add_argument("--strategy", default="slimpack")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    scenario = {**SCENARIO, "strategy": {"kind": args.strategy}}
    settings = dict(setting.split("=", 1) for setting in args.set)
    documents = random_documents(12 * args.steps, 2048, seed=1)
    lengths = [len(document) for document in documents]
    samplers = [slimpack.PlannedBatchSampler(lengths, scenario, set=settings, rank=0)]
    parallel = samplers[0].scenario["parallel"]
    for dp in range(1, parallel["dp"]):
        samplers.append(slimpack.PlannedBatchSampler(lengths, scenario, set=settings,
                                                     rank=dp * parallel["tp"] * parallel["cp"]))
    dataset = slimpack.PackedDataset(documents)
    packed, whole = Model(seed=2), Model(seed=2)
    print("step  samples  slices  packs    loss packed     loss whole  difference")
    worst = 0.0
    for batches in zip(*samplers):
        a = train_packs(packed, batches, dataset)
        b = train_whole(whole, batches[0].samples, documents)
        worst = max(worst, abs(a - b))
        packs = batches[0].plan["forward_packs"]
        slices = sum(len(pack["slices"]) for pack in packs)
        print(f"{batches[0].step:4}  {len(batches[0].samples):7}  {slices:6}  {len(packs):5}  "
              f"{a:13.10f}  {b:13.10f}  {abs(a - b):10.1e}")
    print(f"largest difference {worst:.1e}")
    return worst


if __name__ == "__main__":
    main()
