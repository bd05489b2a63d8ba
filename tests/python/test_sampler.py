"""Batches for loaders: every token once over ranks, resumption, bad samples, training."""

import collections
import json
import random
import re
import sys
import time
import unittest
import warnings

import slimpack
from slimpack.loading import Place, place_of, ranges_of
from support import DEMO, SOURCE, example, main, needs, told

BASE = {
    "model": "llama-7b",
    "cluster": "h800-8",
    "parallel": {"tp": 2, "pp": 2, "dp": 2},
    "workload": {"context": 5000, "lengths": [1], "samples_per_batch": 20},
}
# `balanced` delays outliers; slimpack cuts and merges ranks; chunkflow cuts; padded pads.
STRATEGIES = {
    "packed": {},
    "balanced": {},
    "padded": {},
    "chunkflow": {"strategy.chunk_tokens": 512},
    "slimpack": {},
    "zeppelin": {},
    "hybrid-cp": {},
    "slimpack@cp": {"parallel.cp": 2},
    "fcp": {},
    "te-cp": {},
    "packed@cp": {"parallel.cp": 2, "strategy.cp_sharding": "sequence"},
}


def random_lengths(count, seed=3, longest=5000):
    draw = random.Random(seed)
    return [min(longest, 1 + int(draw.lognormvariate(6.0, 1.4))) for _ in range(count)]


def sampler_of(lengths, strategy="packed", settings=None, **options):
    with told():
        return slimpack.PlannedBatchSampler(
            lengths,
            BASE,
            set={
                "strategy.kind": strategy.split("@")[0],
                **STRATEGIES.get(strategy, {}),
                **(settings or {}),
            },
            **options,
        )


def batches_of(sampler):
    with told():
        return list(sampler)


def facts(batch):
    """All that a rank trains in a step."""
    return batch.step, list(batch), batch.backward, batch.actions, batch.samples, batch.delayed


class Coverage(unittest.TestCase):
    def cover(self, strategy, workers, samples=70):
        """Tokens of each sample over the steps and ranks: once forward, once backward."""
        lengths = random_lengths(samples)
        one = sampler_of(lengths, strategy, rank=0)
        parallel = one.scenario["parallel"]
        ranks = range(parallel["tp"] * parallel["cp"] * parallel["pp"] * parallel["dp"])
        runs = {}
        places = {place_of(rank, parallel): rank for rank in ranks}
        self.assertEqual(len(places), len(ranks))
        # Those that hold tokens of their own, and one that holds tokens of others.
        for place, rank in places.items():
            if (place.tp, place.pp) == (0, 0) or rank == len(ranks) - 1:
                runs[place] = batches_of(sampler_of(lengths, strategy, rank=rank, workers=workers))
        rows = {"forward": collections.Counter(), "backward": collections.Counter()}
        for place, batches in runs.items():
            alike = runs[Place(0, place.cp, 0, place.dp)]
            self.assertEqual(
                [(list(a), a.backward) for a in batches], [(list(a), a.backward) for a in alike]
            )
            if (place.tp, place.pp) != (0, 0):
                continue
            for batch in batches:
                for side, packs in (("forward", batch), ("backward", batch.backward)):
                    for pack in packs:
                        sample = [
                            (part.sample, at) if at < part.begin + part.tokens else None
                            for part in pack.slices
                            for at in range(part.begin, part.begin + part.computed)
                        ]
                        held = [
                            sample[at] for begin, end in pack.ranges for at in range(begin, end)
                        ]
                        rows[side].update(at for at in held if at is not None)
        expected = collections.Counter(
            (i, at) for i, tokens in enumerate(lengths) for at in range(tokens)
        )
        for side in rows:
            self.assertEqual(rows[side], expected, (strategy, side))
        trained = [i for batch in runs[Place(0, 0, 0, 0)] for i in batch.samples]
        self.assertEqual(sorted(trained), list(range(samples)))
        return runs

    def test_each_token_once_over_ranks(self):
        for strategy in STRATEGIES:
            self.cover(strategy, 1, samples=30)

    def test_each_token_once_over_workers(self):
        for strategy in ("balanced", "slimpack"):
            self.cover(strategy, 3, samples=60)

    def test_delayed_come_again(self):
        """Whoever is delayed is trained in a later step of its worker, and none is for ever."""
        for workers in (1, 2):
            batches = batches_of(
                sampler_of(random_lengths(90), "balanced", rank=0, workers=workers)
            )
            self.assertTrue(any(batch.delayed for batch in batches))
            for batch in batches:
                later = next((b for b in batches if b.step == batch.step + workers), None)
                self.assertLessEqual(
                    set(batch.delayed), set(later.samples + later.delayed) if later else set()
                )

    def test_actions_name_packs(self):
        """The actions of a pipeline rank are those of its packs."""
        for rank in (0, 7):
            for batch in batches_of(sampler_of(random_lengths(20), "slimpack", rank=rank)):
                for letters, packs in (("F", batch), ("BI", batch.backward)):
                    ran = {
                        int(action[1:].rstrip("&").split(".")[0])
                        for action in batch.actions
                        if action[0] in letters
                    }
                    self.assertEqual(ran, {pack.number for pack in packs})

    def test_batches_of_tokens(self):
        """workload.tokens_per_batch: as many samples as fit, at least one."""
        scenario = {**BASE, "workload": {"context": 5000, "lengths": [1], "tokens_per_batch": 6000}}
        lengths = random_lengths(50)
        sampler = slimpack.PlannedBatchSampler(lengths, scenario, rank=0, shuffle=False)
        batches = batches_of(sampler)
        self.assertEqual(len(batches), len(sampler))
        self.assertEqual([i for batch in batches for i in batch.samples], list(range(50)))
        for batch, following in zip(batches, batches[1:]):
            tokens = sum(lengths[i] for i in batch.samples)
            self.assertLessEqual(tokens, 6000)
            self.assertGreater(tokens + lengths[following.samples[0]], 6000)

    def test_places(self):
        parallel = {"tp": 2, "cp": 3, "pp": 2, "dp": 2}
        self.assertEqual(
            place_of(1 + 2 * (2 + 3 * (1 + 2 * 1)), {**parallel, "order": "tp-cp-dp-pp"}),
            Place(tp=1, cp=2, dp=1, pp=1),
        )
        self.assertEqual(
            place_of(7, {**parallel, "order": "tp-cp-ep-dp-pp"}), Place(tp=1, cp=0, dp=1, pp=0)
        )
        self.assertEqual(
            place_of(7, {**parallel, "order": "tp-cp-pp-dp"}), Place(tp=1, cp=0, dp=0, pp=1)
        )
        for rank in (-1, 24):
            with self.assertRaisesRegex(slimpack.SlimpackError, "from 0 to 23"):
                place_of(rank, parallel)

    def test_shares_of_ranks(self):
        """Ranges part the rows; of whole chunks each rank has (n^2 + n) / (2 p) causal pairs."""
        draw = random.Random(5)
        for _ in range(200):
            parts = draw.choice((1, 2, 3, 4, 8))
            bounds = [0]
            for _ in range(draw.randint(1, 6)):
                bounds.append(bounds[-1] + draw.randint(1, 60))
            for whole in (False, True):
                rows = [
                    at
                    for part in range(parts)
                    for begin, end in ranges_of(bounds, part, parts, whole)
                    for at in range(begin, end)
                ]
                self.assertEqual(sorted(rows), list(range(bounds[-1])))
        for parts in (2, 4):
            n = 2 * parts * 7
            for part in range(parts):
                pairs = [
                    sum(
                        at % n + 1
                        for begin, end in ranges_of([0, n, 2 * n], part, parts, False)
                        for at in range(begin, end)
                    )
                ]
                self.assertEqual(pairs, [2 * n * (n + 1) // 2 // parts])


class Resume(unittest.TestCase):
    def test_same_packs(self):
        """From every step on, through JSON, by a loader that was ahead, on another rank's state."""
        lengths = random_lengths(90)
        for strategy, workers in (("balanced", 1), ("balanced", 3), ("slimpack", 2)):
            sampler = sampler_of(lengths, strategy, rank=0, workers=workers)
            sampler.set_epoch(4)
            whole = batches_of(sampler)
            again, other = (
                sampler_of(lengths, strategy, rank=rank, workers=workers) for rank in (5, 0)
            )
            for k, batch in enumerate(whole[:-1]):
                again.load_state_dict(json.loads(json.dumps(sampler.state_dict(after=batch.step))))
                other.load_state_dict(again.state_dict())
                found = [facts(b) for b in batches_of(other)]
                self.assertEqual(found, [facts(b) for b in whole[k + 1 :]])

    def test_state_while_it_runs(self):
        lengths = random_lengths(90)
        sampler = sampler_of(lengths, "balanced", rank=0)
        whole = batches_of(sampler)
        self.assertEqual((sampler.epoch, sampler.state_dict()["step"]), (1, 0))
        following = batches_of(sampler)
        self.assertNotEqual([b.samples for b in following], [b.samples for b in whole])
        broken = sampler_of(lengths, "balanced", rank=0)
        with told():
            running = iter(broken)
            next(running), next(running)
            state = broken.state_dict()
            running.close()
        again = sampler_of(lengths, "balanced", rank=0)
        again.load_state_dict(state)
        self.assertEqual([facts(b) for b in batches_of(again)], [facts(b) for b in whole[2:]])
        self.assertEqual([facts(b) for b in batches_of(again)], [facts(b) for b in following])
        # As jobs do at the begin of every epoch; another one begins with its first step.
        for epoch, expected in ((0, whole[2:]), (1, following)):
            again.load_state_dict(state)
            again.set_epoch(epoch)
            self.assertEqual([facts(b) for b in batches_of(again)], [facts(b) for b in expected])

    def test_other_jobs_are_refused(self):
        state = sampler_of([5, 6, 7], rank=0).state_dict()
        for other in (
            sampler_of([5, 6, 8], rank=0),
            sampler_of([5, 6, 7], rank=0, seed=1),
            sampler_of([5, 6, 7], "ffd", rank=0),
            sampler_of([5, 6, 7], rank=0, workers=2),
        ):
            with self.assertRaisesRegex(slimpack.SlimpackError, "load_state_dict"):
                other.load_state_dict(state)
        with self.assertRaisesRegex(slimpack.SlimpackError, "not handed out"):
            sampler_of([5], rank=0).state_dict(after=3)


class BadSamples(unittest.TestCase):
    def test_bad_lengths_are_skipped_and_told(self):
        lengths = random_lengths(30)
        bad = {3: 0, 7: -4, 11: None, 12: 2.5, 29: 1 << 40}
        over = {15: 5001, 18: 9000}
        for index, value in {**bad, **over}.items():
            lengths[index] = value
        with told() as texts:
            sampler = slimpack.PlannedBatchSampler(lengths, BASE, rank=0)
            batches = list(sampler)
        self.assertEqual(set(sampler.skipped), {*bad, *over})
        for index in bad:
            self.assertEqual(
                sum(text.startswith(f"sample {index} is skipped") for text in texts), 1, texts
            )
        self.assertEqual(
            [text for text in texts if "longer than the context of 5000, dropped: 2" in text],
            [text for text in texts if "context" in text],
        )
        self.assertEqual(
            sorted(i for batch in batches for i in batch.samples),
            [i for i in range(30) if i not in sampler.skipped],
        )

    def test_what_plans_do_not_say_is_refused(self):
        for settings, word in (
            ({"strategy.kind": "concat"}, "concat"),
            ({"workload.over_length": "split"}, "split"),
            ({"strategy.cp_sharding": "adaptive"}, "adaptive"),
        ):
            with self.assertRaisesRegex(slimpack.SlimpackError, word):
                slimpack.PlannedBatchSampler([5], BASE, set=settings, rank=0)

    def test_arguments_that_cannot_be_are_value_errors(self):
        for name, values in (
            ("workers", (0, -1, 1.5, "2", None)),
            ("ahead", (0, -3, 2.5)),
            ("samples_per_batch", (0, -1, 0.5, "8", [])),
            ("rank", (-1, 8, 1.5, "first")),  # 2 x 2 x 2 ranks
        ):
            for value in values:
                with self.subTest(name, value=value):
                    with self.assertRaisesRegex(ValueError, f"^{name}: expected .*, got ") as raised:
                        slimpack.PlannedBatchSampler([5], BASE, **{"rank": 0, name: value})
                    self.assertIsInstance(raised.exception, slimpack.SlimpackError)
        with self.assertRaisesRegex(ValueError, "^lengths: expected .*one sample"):
            slimpack.PlannedBatchSampler([], BASE, rank=0)

    def test_micro_batches_say_how_many_samples_a_step_has(self):
        """Samples that fill 2 x 3 x 2 rows of the context one after the other."""
        lengths = random_lengths(300)
        with told():
            sampler = slimpack.PlannedBatchSampler(
                lengths,
                BASE,
                set={
                    "strategy.kind": "packed",
                    "schedule.microbatches": 3,
                    "schedule.microbatch_samples": 2,
                    "workload.lengths": "wikipedia",
                    "workload.samples_per_batch": None,
                },
                rank=0,
                shuffle=False,
            )
            batches = list(sampler)
        self.assertEqual(len(batches), len(sampler))
        self.assertEqual([i for batch in batches for i in batch.samples], list(range(300)))
        for batch in batches:
            rows, held = 0, 5000
            following = batch.samples[-1] + 1
            for sample in batch.samples + [following][: following < 300]:
                if held + lengths[sample] > 5000:
                    rows, held = rows + 1, 0
                held += lengths[sample]
            # With the next sample there are more.
            self.assertEqual(rows, 13) if following < 300 else self.assertLessEqual(rows, 12)
            packs = batch.plan["forward_packs"]
            self.assertEqual(len(packs), 6) if following < 300 else self.assertLessEqual(len(packs), 6)

    def test_truncated_and_over_length(self):
        with told() as texts:
            sampler = slimpack.PlannedBatchSampler(
                [9000, 40], BASE, set={"workload.over_length": "truncate"}, rank=0
            )
            batches = list(sampler)
        self.assertTrue(any("truncated to 5000" in text for text in texts))
        parts = [part for batch in batches for pack in batch for part in pack.slices]
        self.assertLessEqual({part.length for part in parts}, {5000, 40})
        with self.assertRaisesRegex(slimpack.SlimpackError, "9000"):
            list(
                slimpack.PlannedBatchSampler(
                    [9000, 40], BASE, set={"workload.over_length": "error"}, rank=0
                )
            )

    def test_no_memory_is_told(self):
        with told() as texts:
            sampler = slimpack.PlannedBatchSampler(
                [4000] * 8, BASE, set={"memory.limit_gib": 5}, rank=0
            )
            batch = next(iter(sampler))
        self.assertTrue(batch.reason)
        self.assertTrue(any(text.startswith("step 0 does not fit") for text in texts))

    def test_no_memory_is_told_once(self):
        """Of all steps and threads the first alone is told; samples are those of the data set."""
        lengths = [100 + i for i in range(50)]
        lengths[3::10] = [4000] * 5
        for workers in (1, 4):
            with told() as texts:
                sampler = slimpack.PlannedBatchSampler(
                    lengths,
                    BASE,
                    set={"memory.limit_gib": 20},
                    rank=0,
                    workers=workers,
                    samples_per_batch=5,
                    shuffle=False,
                )
                batches = list(sampler)
            lacking = [batch for batch in batches if batch.reason]
            self.assertGreater(len(lacking), 3)
            self.assertIn("sample 23 of 4000 tokens", batches[4].reason)
            for batch in lacking:
                index = int(re.search(r"sample (\d+) of (\d+) tokens", batch.reason)[1])
                self.assertIn(index, range(5 * batch.step, 5 * batch.step + 5))
            self.assertEqual(sum("GiB" in text for text in texts), 1, texts)

    def test_warnings_name_the_caller(self):
        """The line that a warning names is of the program that uses the package."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sampler = slimpack.PlannedBatchSampler(
                [0, 4000, 40], BASE, set={"memory.limit_gib": 5}, rank=0
            )
            for packs in sampler:
                for pack in packs:
                    _ = slimpack.PackedDataset([None] * 3)[pack]
        self.assertGreaterEqual(len(caught), 3)
        self.assertEqual({warning.filename for warning in caught}, {__file__})

    def test_a_document_in_slices_is_told_once(self):
        sampler = sampler_of([5000], "chunkflow", rank=0, settings={"parallel.dp": 1})
        packs = batches_of(sampler)[0]
        self.assertGreater(len(packs), 1)
        dataset = slimpack.PackedDataset([None])
        with told() as texts:
            skipped = [dataset[pack]["skipped"] for pack in packs]
        self.assertEqual(skipped, [[0]] * len(packs))
        self.assertEqual(len(texts), 1, texts)


class Dataset(unittest.TestCase):
    def test_rows_of_packs(self):
        """Against the documents themselves, at every row."""
        draw = random.Random(2)
        lengths = random_lengths(40, longest=900)
        documents = [[draw.randrange(1000) for _ in range(tokens)] for tokens in lengths]
        dataset = slimpack.PackedDataset(documents, pad=-7)
        for strategy in ("padded", "chunkflow", "slimpack@cp"):
            sampler = sampler_of(
                lengths,
                strategy,
                {"strategy.chunk_tokens": 128} if strategy == "chunkflow" else None,
                rank=0,
            )
            for batch in batches_of(sampler):
                for values in dataset.__getitems__(batch):
                    pack = values["pack"]
                    self.assertEqual(
                        (values["cu_seqlens"][-1], len(values["cu_seqlens"])),
                        (pack.rows, len(pack.slices) + 1),
                    )
                    at = [row for begin, end in pack.ranges for row in range(begin, end)]
                    self.assertEqual(
                        [len(values[n]) for n in ("tokens", "labels", "position_ids")],
                        [len(at)] * 3,
                    )
                    for row, token, label, position in zip(
                        at, values["tokens"], values["labels"], values["position_ids"]
                    ):
                        k = max(
                            k for k, begin in enumerate(values["cu_seqlens"][:-1]) if begin <= row
                        )
                        part = pack.slices[k]
                        document = documents[part.sample]
                        self.assertEqual(position, part.begin + row - values["cu_seqlens"][k])
                        keys = values["cu_seqlens_k"]
                        self.assertEqual(keys[k + 1] - keys[k], part.begin + part.computed)
                        inside = position < part.begin + part.tokens
                        self.assertEqual(token, document[position] if inside else -7)
                        follows = inside and position + 1 < len(document)
                        self.assertEqual(label, document[position + 1] if follows else -100)
        self.assertFalse(dataset._open)

    def test_bad_documents_are_skipped_and_told(self):
        """Rows of a sample that cannot be read stay, without labels; others are as they were."""
        good = [[i] * 50 for i in range(1, 9)]

        class Broken(list):
            def __getitem__(self, index):
                if index == 2:
                    raise OSError("disk error")
                return [9] * 10 if index == 5 else super().__getitem__(index)

        sampler = sampler_of([50] * 8, rank=0, settings={"parallel.dp": 1})
        for pack in batches_of(sampler)[0]:
            whole = slimpack.PackedDataset(good)[pack]
            with told() as texts:
                values = slimpack.PackedDataset(Broken(good))[pack]
            bad = [part.sample for part in pack.slices if part.sample in (2, 5)]
            self.assertEqual(values["skipped"], bad)
            self.assertEqual(len(texts), len(bad))
            for k, part in enumerate(pack.slices):
                rows = slice(values["cu_seqlens"][k], values["cu_seqlens"][k + 1])
                if part.sample in bad:
                    self.assertEqual(
                        (values["tokens"][rows], values["labels"][rows]), ([0] * 50, [-100] * 50)
                    )
                else:
                    self.assertEqual(
                        (values["tokens"][rows], values["labels"][rows]),
                        (whole["tokens"][rows], whole["labels"][rows]),
                    )

    def test_torch(self):
        """A sampler of PyTorch's own, in a DataLoader with workers; plans are not sent to them."""
        torch = needs("torch")
        from torch.utils.data import DataLoader, Sampler

        lengths = random_lengths(120, longest=900)
        documents = [torch.arange(tokens) + 1000 * i for i, tokens in enumerate(lengths)]
        expected = batches_of(sampler_of(lengths, "slimpack", rank=0))
        sampler = sampler_of(lengths, "slimpack", rank=0)
        self.assertIsInstance(sampler, Sampler)
        with told():
            loader = DataLoader(
                slimpack.PackedDataset(documents),
                batch_sampler=sampler,
                num_workers=2,
                collate_fn=list,
            )
            steps = list(loader)
        self.assertEqual(
            [[values["pack"] for values in packs] for packs in steps], [list(b) for b in expected]
        )
        for packs in steps:
            for values in packs:
                self.assertIsInstance(values["tokens"], torch.Tensor)
                tokens = torch.cat(
                    [
                        documents[p.sample][p.begin : p.begin + p.tokens]
                        for p in values["pack"].slices
                    ]
                )
                rows = torch.cat([torch.arange(begin, end) for begin, end in values["pack"].ranges])
                self.assertTrue(torch.equal(values["tokens"], tokens[rows]))
        self.assertEqual(sampler.batch(expected[-1].step).actions, expected[-1].actions)


class Training(unittest.TestCase):
    def test_loss_of_packs_is_that_of_samples(self):
        needs("numpy")
        program = example("train_packed")
        for words in (
            [],
            ["--strategy", "packed"],
            ["--strategy", "chunkflow", "--set", "strategy.chunk_tokens=64"],
            ["--strategy", "padded"],
        ):
            sys.argv = ["train_packed.py", "--steps", "2", *words]
            with told():
                self.assertLess(program.main(), 1e-12)

    def test_gradients_are_differences(self):
        """Of a document in three slices, by central differences of its loss."""
        np = needs("numpy")
        program = example("train_packed")
        draw = np.random.default_rng(7)
        tokens = draw.integers(0, program.VOCABULARY, 20)
        labels = np.append(tokens[1:], -100)
        model = program.Model(seed=1)

        def forward():
            model.begin_step()
            for begin, end in ((0, 9), (9, 13), (13, 20)):
                model.forward(0, begin, tokens[begin:end], labels[begin:end])
            return model.loss

        forward()
        for begin in (13, 9, 0):
            model.backward(0, begin)
        gradients = model.gradients
        for name, weight in model.weights.items():
            for _ in range(6):
                at = tuple(draw.integers(0, n) for n in weight.shape)
                if name == "embed":
                    at = (tokens[draw.integers(0, 20)], at[1])
                kept, losses = weight[at], []
                for step in (1e-5, -1e-5):
                    weight[at] = kept + step
                    losses.append(forward())
                weight[at] = kept
                self.assertAlmostEqual(
                    gradients[name][at], (losses[0] - losses[1]) / 2e-5, delta=1e-6
                )


class Loader(unittest.TestCase):
    def test_example(self):
        import subprocess

        words = [sys.executable, str(SOURCE / "experiments/examples/loader.py")]
        done = subprocess.run(
            [*words, DEMO, "--batches", "3", "--samples", "16", "--step-ms", "60"],
            capture_output=True,
            text=True,
        )
        self.assertRegex(
            done.stdout,
            r"\n3 plans: waited [0-9.]+ ms for the first; planned [0-9.]+ ms behind steps, "
            r"waited [0-9.]+ ms, [0-9.]+ % hidden\n$",
            done.stderr,
        )
        done = subprocess.run([*words, "nothing.json"], capture_output=True, text=True)
        self.assertEqual(
            (done.returncode, done.stderr), (1, "error: nothing.json: No such file or directory\n")
        )

    def test_ahead_is_kept(self):
        """No more steps are planned than asked for and `ahead`, whatever time there is."""
        sampler = sampler_of([40] * 200, rank=0, samples_per_batch=4, ahead=3)
        planned = []
        plan = sampler.planners[0].plan
        sampler.planners[0].plan = lambda tokens: planned.append(1) or plan(tokens)
        with told():
            running = iter(sampler)
            next(running)
            time.sleep(0.5)
            self.assertEqual(len(planned), 4)  # the one that was taken, and 3
            running.close()

    def slow_planning_is_hidden(self):
        """99 % of it, by four workers at steps of 600 ms, 256 documents each."""
        lengths = random_lengths(256 * 21, longest=32768)
        with told():
            sampler = slimpack.PlannedBatchSampler(
                lengths,
                DEMO,
                set={"strategy.kind": "slimpack"},
                rank=0,
                samples_per_batch=256,
                workers=4,
                ahead=5,
            )
            for _ in sampler:
                time.sleep(0.6)
        print(sampler.figures())
        self.assertGreater(sampler.figures()["planned_s"], 0.5)
        self.assertGreaterEqual(sampler.figures()["hidden"], 0.99)


if __name__ == "__main__":
    main()
