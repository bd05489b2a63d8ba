#!/usr/bin/env python3
"""A data loader that plans ahead: lengths in, packs out, by `slimpack plan --stream`.

    loader = PlannedLoader(batches, "scenario.json")   # batches: lists of (sample, tokens)
    for batch in loader:
        for pack in batch.forward[rank]: ...           # [(sample, begin, tokens), ...]
    print(loader.figures())

While the training job runs a step, slimpack plans the next ones in a process of its own; the loader
waits only for a plan that is not there yet. Needs nothing but Python's standard library. As a
program it trains for show: batches of random documents, steps that sleep.

    loader.py experiments/demo.json --batches 8 --samples 512 --step-ms 500
"""
import argparse
import collections
import json
import queue
import random
import subprocess
import sys
import threading
import time


class PlannedBatch:
    """What a training job needs of one plan; `document` is the plan itself (slimpack/plan/1)."""

    def __init__(self, document, samples):
        plan = document["batches"][0]
        self.document = document
        self.reason = document.get("reason")  # why it needs more memory than there is, or None
        self.samples = len(plan["samples"])
        self.predicted_ms = plan["predicted_ms"]
        self.delayed = [samples[i] for i in plan["delayed"]]
        self.dropped = [samples[i] for i in plan["dropped"]]
        self.forward = self._packs(plan, "forward_packs", samples)
        self.backward = self._packs(plan, "backward_packs", samples)
        self.actions = {(stage["dp"], stage["pp"]): stage["actions"] for stage in plan["stages"]}

    @staticmethod
    def _packs(plan, side, samples):
        """Packs of each data-parallel rank; one that several ranks share stands with each."""
        packs = collections.defaultdict(list)
        for number, pack in enumerate(plan[side]):
            slices = [(samples[plan["samples"][cut["sample"]]["id"]][0], cut["begin"], cut["tokens"])
                      for cut in pack["slices"]]
            for rank in pack["dp"]:
                packs[rank].append((number, slices))
        return dict(packs)


class PlannedLoader:
    """Iterates over the plans of batches. A sample that a plan delays comes again in a later batch."""

    def __init__(self, batches, scenario, program="slimpack", ahead=2, options=()):
        self.planned_s = self.waited_s = 0.0  # behind the first batch
        self.first_ms = 0.0
        self.count = 0  # of the batches that have been taken
        self._batches = iter(batches)
        self._ahead = ahead
        self._sent = collections.deque()  # (samples, when) of the batches that are not answered
        self._again = []  # delayed samples
        self._turn = threading.Condition()  # for count and _again
        self._answers = queue.Queue()
        self._process = subprocess.Popen(
            [program, "plan", scenario, "--stream", "--quiet", "-j", "1", *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._send, daemon=True).start()
        threading.Thread(target=self._receive, daemon=True).start()

    def _next_samples(self, handed):
        """Samples of the next batch, once not more than `ahead` are out; none at the end. Behind the
        last batch the samples that are still delayed make batches of their own."""
        with self._turn:
            self._turn.wait_for(lambda: handed - self.count < self._ahead)
            samples = list(next(self._batches, ()))
            if not samples:
                self._turn.wait_for(lambda: self._again or handed == self.count)
            samples += self._again
            self._again = []
        return samples

    def _send(self):
        handed = 0
        try:
            while samples := self._next_samples(handed):
                self._sent.append((samples, time.monotonic()))
                self._process.stdin.write(json.dumps([tokens for _, tokens in samples]) + "\n")
                self._process.stdin.flush()
                handed += 1
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # the planner has ended; __next__ tells so

    def _receive(self):
        """One planner plans one batch after another, so that its time is from answer to answer."""
        before = 0.0
        for line in self._process.stdout:
            now = time.monotonic()
            samples, sent = self._sent.popleft()
            document = json.loads(line)
            self._answers.put((document, samples, now - max(sent, before)))
            before = now
        self._answers.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        begun = time.monotonic()
        answer = self._answers.get()
        waited = time.monotonic() - begun
        if answer is None:
            self._answers.put(None)
            if self._process.wait() not in (0, 1):  # 1: some plan needs more memory than there is
                raise RuntimeError("slimpack plan --stream has failed")
            raise StopIteration
        document, samples, planned = answer
        if not document["batches"]:
            raise RuntimeError("no plan: " + document["reason"])
        batch = PlannedBatch(document, samples)
        if self.count == 0:
            self.first_ms = 1e3 * waited
        else:
            self.planned_s += planned
            self.waited_s += waited
        with self._turn:
            self._again += batch.delayed
            self.count += 1
            self._turn.notify()
        batch.planned_ms, batch.waited_ms = 1e3 * planned, 1e3 * waited
        return batch

    def figures(self):
        """The first plan has no step to hide behind; it is told by itself."""
        hidden = 1.0 - self.waited_s / self.planned_s if self.planned_s > 0.0 else 1.0
        return (f"{self.count} plans: waited {self.first_ms:.1f} ms for the first; planned "
                f"{1e3 * self.planned_s:.1f} ms behind steps, waited {1e3 * self.waited_s:.1f} ms, "
                f"{100.0 * max(hidden, 0.0):.1f} % hidden")


def random_batches(batches, samples, seed):
    """Documents of very different lengths: half of them shorter than 600 tokens, few of 30,000."""
    draw = random.Random(seed)
    for batch in range(batches):
        yield [(f"document {batch}.{i}", min(32768, 1 + int(draw.lognormvariate(6.4, 1.4))))
               for i in range(samples)]


def main():
    parser = argparse.ArgumentParser(description="Plan batches while steps run.")
    parser.add_argument("scenario")
    parser.add_argument("--program", default="slimpack")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--step-ms", type=float, help="how long a step takes (default: as predicted)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    options = [word for setting in args.set for word in ("--set", setting)]
    loader = PlannedLoader(random_batches(args.batches, args.samples, args.seed), args.scenario,
                           args.program, options=options)
    print("step  samples  packs  predicted ms  planned ms  waited ms")
    for step, batch in enumerate(loader):
        if batch.reason:
            print(f"warning: step {step} does not fit: {batch.reason}", file=sys.stderr)
        packs = len({number for rank in batch.forward.values() for number, _ in rank})
        print(f"{step:4}  {batch.samples:7}  {packs:5}  {batch.predicted_ms:12.1f}  "
              f"{batch.planned_ms:10.1f}  {batch.waited_ms:9.1f}", flush=True)
        time.sleep(1e-3 * (batch.predicted_ms if args.step_ms is None else args.step_ms))
    print(loader.figures())


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")
