"""Planned batches for data loaders: which slices of which samples run in which pack on which rank.

    sampler = PlannedBatchSampler(lengths, "scenario.json", rank=rank)
    loader = DataLoader(PackedDataset(documents), batch_sampler=sampler, collate_fn=list)
    for packs in loader: ...            # those of this rank, in the order of their forwards

Works without PyTorch; with it the sampler is one of torch.utils.data.
"""
from __future__ import annotations

import array
import hashlib
import itertools
import json
import math
import operator
import os
import random
import re
import sys
import threading
import time
import warnings
from dataclasses import dataclass
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Union

from .commands import Answer, ArgumentError, Scenario, Settings, SlimpackError
from .planner import Planner

try:
    from torch.utils.data import Sampler
except ImportError:
    Sampler = object

_LONGEST = 2147483647  # tokens of a sample (SP_MAX_LENGTH_TOKENS of sim/workload/lengths.h)
# What a plan does not say of its samples.
_NOT_LOADED = {
    ("strategy", "kind", "concat"): "its pieces of documents are no samples; use 'ffd', or join "
                                    "documents in the data set",
    ("workload", "over_length", "split"): "its pieces are no samples; use 'drop' or 'truncate', or "
                                          "split documents in the data set",
    ("strategy", "cp_sharding", "adaptive"): "a plan does not say which cut it chose; use "
                                             "'document' or 'sequence'"}
_KEPT = 64  # batches that `PlannedBatchSampler.batch` still knows


@dataclass(frozen=True)
class Slice:
    """Tokens [begin, begin + tokens) of a sample; `computed` >= tokens rows, the rest padding."""
    sample: int  # index into the data set
    begin: int
    tokens: int
    computed: int
    length: int  # of the sample as planned, in tokens: less than it has where it was truncated
    # its attention runs on so many dp ranks from the first on
    zone: Optional[tuple[int, int]] = None


@dataclass(frozen=True)
class Pack:
    """Slices that run together as one micro-batch of variable lengths: `rows` rows.

    `ranges` alone is of this rank: slices, cu_seqlens and position_ids are of all rows, with their
    padding, and alike on all ranks that share the pack. PackedDataset cuts out this rank's rows."""
    step: int
    number: int  # in the plan: action F3 runs forward pack 3
    ranks: tuple[int, ...]  # data-parallel ranks that share it
    slices: tuple[Slice, ...]
    # [from, to) of its rows that this rank holds; all, or its share
    ranges: tuple[tuple[int, int], ...]
    microbatch: int
    gathers: bool = False  # keys and values are gathered, not sent in a ring

    @property
    def rows(self) -> int:
        """Tokens computed, with padding."""
        return sum(part.computed for part in self.slices)

    @property
    def cu_seqlens(self) -> list[int]:
        """[slices + 1] where each slice's rows begin, and the end, of queries in the whole pack."""
        return list(itertools.accumulate((part.computed for part in self.slices), initial=0))

    @property
    def cu_seqlens_k(self) -> list[int]:
        """[slices + 1] likewise of the keys, begin + computed of each: from the sample's begin."""
        return list(itertools.accumulate((s.begin + s.computed for s in self.slices), initial=0))

    @property
    def position_ids(self) -> list[int]:
        """[rows] positions in their samples."""
        return [at for part in self.slices for at in range(part.begin, part.begin + part.computed)]


class PlannedBatch(List[Pack]):
    """Forward packs of this rank, in order. Workers of a loader get a list of them alone."""

    step: int
    backward: list[Pack]  # its backward packs, in order
    actions: list[str]  # of this pipeline rank: "F0", "B0.1", ...
    samples: list[int]  # trained in this step, over all ranks
    delayed: list[int]  # come again in a later step
    dropped: list[int]  # never come again
    plan: dict[str, Any]  # the batch of the plan, over all ranks
    reason: Optional[str]  # why it needs more memory than there is
    warnings: list[str]  # of its plan, but for the reason
    planned_s: float  # seconds that the plan took
    waited_s: float  # seconds that the loader waited for it

    def __reduce__(self) -> Any:
        return list, (list(self),)


@dataclass(frozen=True)
class Place:
    """Coordinates of a global rank."""
    tp: int
    cp: int
    pp: int
    dp: int


def place_of(rank: int, parallel: Mapping[str, Any]) -> Place:
    """Where a global rank lies in a resolved layout: by parallel.order, fastest first."""
    at, rest = {}, rank
    for axis in parallel.get("order", "tp-cp-dp-pp").split("-"):
        if axis != "ep":  # experts are spread over ranks of the other axes
            at[axis], rest = rest % parallel[axis], rest // parallel[axis]
    if rank < 0 or rest:
        ranks = math.prod(parallel[axis] for axis in at)
        raise ArgumentError(f"rank: expected one from 0 to {ranks - 1}, as the scenario has "
                            f"{ranks} of them, got {rank}")
    return Place(**at)


def ranges_of(bounds: Sequence[int], part: int, parts: int,
              whole: bool) -> tuple[tuple[int, int], ...]:
    """Rows of a pack that rank `part` of `parts` context-parallel ones holds: chunks i and
    2 parts - 1 - i, of the pack's rows as one (`whole`: strategy.cp_sharding "sequence") or of each
    slice's; rows left over are dealt out in turn. bounds: cu_seqlens of the pack."""
    if parts == 1:
        return ((0, bounds[-1]),)
    found, turn = [], 0
    for begin, end in [(0, bounds[-1])] if whole else zip(bounds, bounds[1:]):
        chunk = (end - begin) // (2 * parts)
        for number in (part, 2 * parts - 1 - part):
            found.append((begin + number * chunk, begin + (number + 1) * chunk))
        for left in range(begin + 2 * parts * chunk, end):
            if turn % parts == part:
                found.append((left, left + 1))
            turn += 1
    return tuple(sorted(piece for piece in found if piece[0] < piece[1]))


class PlannedBatchSampler(Sampler):  # type: ignore[misc]
    """Iterates over the PlannedBatches of one rank, planned on threads while steps run.

    lengths: tokens of each sample. A bad one (no integer, below 1, above the context where the
        scenario drops those) is left out and noted in `skipped` {index: reason}; a warning tells
        of each, but of all those above the context at once.
    scenario, set: of the job; its workload counts for context, over_length and the size of a batch.
    rank: global rank of this process, in parallel.order (default: $RANK, or 0). All ranks plan
        alike, each for itself; a step that has no pack for this rank is an empty batch.
    samples_per_batch: in place of the scenario's.
    workers: threads that plan. Thread k plans the steps k, k + workers, ..., and samples that one
        of these delays come again in the next of them: plans do not depend on time.
    ahead: steps that are planned before they are asked for.
    """

    def __init__(self, lengths: Sequence[int], scenario: Scenario, *,
                 set: Optional[Settings] = None, rank: Optional[int] = None,
                 samples_per_batch: Optional[int] = None, shuffle: bool = True, seed: int = 0,
                 workers: int = 1, ahead: int = 4):
        workers, ahead = _count("workers", workers), _count("ahead", ahead)
        if samples_per_batch is not None:
            samples_per_batch = _count("samples_per_batch", samples_per_batch,
                                       ", or None for the scenario's")
        if len(lengths) == 0:
            raise ArgumentError("lengths: expected the tokens of one sample at least, got none")
        self.planners = [Planner(scenario, set) for _ in range(workers)]
        for planner in self.planners[1:]:
            planner.skip_settings()
        self.scenario = self.planners[0].scenario
        for (section, key, value), why in _NOT_LOADED.items():
            if self.scenario[section].get(key) == value:
                raise SlimpackError(f"{section}.{key}: {value!r} cannot be loaded: {why}", 3)
        parallel = self.scenario["parallel"]
        named = os.environ.get("RANK", "0") if rank is None else rank
        try:
            self.rank = int(named) if rank is None else operator.index(named)
        except (TypeError, ValueError):
            source = "rank ($RANK)" if rank is None else "rank"
            raise ArgumentError(f"{source}: expected a whole number, got {named!r}") from None
        self.place = place_of(self.rank, parallel)
        self.skipped: dict[int, str] = {}
        self._told: dict[str, None] = {}
        self._dropped = 0  # samples above the context
        self._lacked = False  # a step that does not fit was told
        self._context = self.scenario["workload"].get("context", 0) or _LONGEST
        self._lengths = [self._length(i, tokens) for i, tokens in enumerate(lengths)]
        if self._dropped > 0:
            self._tell(f"samples longer than the context of {self._context}, dropped: "
                       f"{self._dropped} (`skipped` names them)")
        self._samples, self._seed, self._shuffle = samples_per_batch, seed, shuffle
        self.ahead = ahead
        self.epoch = 0
        self._states: dict[int, dict[str, Any]] = {}
        self._start: Optional[dict[str, Any]] = None  # of load_state_dict, for the next iteration
        self._kept: dict[int, PlannedBatch] = {}
        self._times: list[tuple[float, float]] = []  # planned and waited, in seconds, of each step
        settings = [self.scenario, seed, shuffle, workers, samples_per_batch]
        self._key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()
                                   + array.array("q", self._lengths).tobytes()).hexdigest()

    def _length(self, index: int, tokens: Any) -> int:
        """0: it is left out."""
        try:
            value = operator.index(tokens)
        except TypeError:
            value = 0
        if not 1 <= value <= _LONGEST:
            return self._skip(index, f"expected a length from 1 to {_LONGEST}, got {tokens!r}")
        over_length = self.scenario["workload"].get("over_length", "drop")
        if value > self._context and over_length == "drop":
            self._dropped += 1
            self.skipped[index] = f"{value} tokens are more than the context of {self._context}"
            return 0
        if value > self._context and over_length == "truncate":
            self._tell(f"samples longer than the context are truncated to {self._context} tokens")
        return value

    def _skip(self, index: int, reason: str) -> int:
        if index not in self.skipped:
            self.skipped[index] = reason
            self._tell(f"sample {index} is skipped: {reason}")
        return 0

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told[text] = None
            _warn(text)

    def _chunks(self) -> list[list[int]]:
        """Samples of each step of the epoch, but for delayed ones."""
        order = [i for i, tokens in enumerate(self._lengths) if tokens]
        if self._shuffle:
            random.Random(f"{self._seed} {self.epoch}").shuffle(order)
        workload = self.scenario["workload"]
        most = self._samples or workload.get("samples_per_batch")
        if most:
            return [order[i:i + most] for i in range(0, len(order), most)]
        # A budget of tokens, or the micro-batches' rows, which samples fill one after the other.
        size = workload.get("tokens_per_batch") or self._context
        rows = 1 if "tokens_per_batch" in workload else self._rows()
        chunks: list[list[int]] = []
        held, begun = size, rows
        for index in order:
            tokens = min(self._lengths[index], self._context)
            if held + tokens > size:
                begun, held = begun + 1, 0
                if begun > rows:
                    chunks.append([])
                    begun = 1
            chunks[-1].append(index)
            held += tokens
        return chunks

    def _rows(self) -> int:
        """Of a step, over all ranks."""
        schedule = self.scenario["schedule"]
        return (schedule["microbatches"] * schedule.get("microbatch_samples", 1)
                * self.scenario["parallel"]["dp"])

    def __len__(self) -> int:
        """Steps of an epoch, but for those at its end that train nothing but delayed samples."""
        return len(self._chunks())

    def set_epoch(self, epoch: int) -> None:
        """Another order of the samples, on all ranks; else each iteration is the next epoch."""
        self._start = self._start if epoch == self.epoch else None
        self.epoch = epoch

    def state_dict(self, after: Optional[int] = None) -> dict[str, Any]:
        """Where to go on once step `after` is trained (`Pack.step`; default: the last one handed
        out, but a loader with workers holds some that are not trained). Any rank may load it."""
        fresh = {"epoch": self.epoch, "step": 0, "late": [[] for _ in self.planners]}
        state = self._start or (list(self._states.values()) or [fresh])[-1]
        if after is not None:
            if after not in self._states:
                raise SlimpackError(f"state_dict: step {after} was not handed out", 2)
            state = self._states[after]
        return {"version": 1, "key": self._key, **state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on there, with the same packs as without the break. SlimpackError
        where scenario, lengths, seed, workers or samples_per_batch are others."""
        if state.get("version") != 1 or state.get("key") != self._key:
            raise SlimpackError("load_state_dict: the state is of another scenario, other lengths, "
                                "or another seed, shuffle, workers or samples_per_batch", 3)
        self.epoch = state["epoch"]
        self._start = {name: state[name] for name in ("epoch", "step", "late")}

    def batch(self, step: int) -> PlannedBatch:
        """What was planned for one of the last 64 steps handed out: actions, backward packs."""
        if step not in self._kept:
            raise KeyError(f"step {step} is none of the last {len(self._kept)} handed out: "
                           "iterate the sampler first")
        return self._kept[step]

    def figures(self, first: int = 1) -> dict[str, float]:
        """Seconds of planning and of waiting for it, and the share hidden behind steps (1: all).
        No step hides the `first` plans, of which the waiting is told by itself: as many as are
        asked for before a step is run, num_workers * prefetch_factor of a DataLoader with workers.
        """
        planned_s, waited_s = (sum(times[i] for times in self._times[first:]) for i in (0, 1))
        hidden = 1.0 - waited_s / planned_s if planned_s > 0.0 else 1.0
        first_s = sum(waited for _, waited in self._times[:first])
        return {"steps": len(self._times), "first_s": first_s,
                "planned_s": planned_s, "waited_s": waited_s, "hidden": max(hidden, 0.0)}

    def __iter__(self) -> Iterator[PlannedBatch]:
        start = self._start or {"step": 0, "late": [[] for _ in self.planners]}
        self._start, self._states, epoch = None, {}, self.epoch
        late = [list(chain) for chain in start["late"]]
        run = _Run(self, self._chunks(), start["step"], late)
        try:
            while True:
                begun = time.monotonic()
                batch = run.take()
                if batch is None:
                    break
                batch.waited_s = time.monotonic() - begun
                self._note(batch)
                late[batch.step % len(late)] = batch.delayed
                self._states[batch.step] = {"epoch": epoch, "step": batch.step + 1,
                                            "late": [list(chain) for chain in late]}
                yield batch
            if self.epoch == epoch:
                self.epoch += 1
            if self._states:
                self._states[max(self._states)] = {
                                 "epoch": epoch + 1, "step": 0, "late": [[] for _ in late]}
        finally:
            run.close()

    def _note(self, batch: PlannedBatch) -> None:
        self._times.append((batch.planned_s, batch.waited_s))
        self._kept[batch.step] = batch
        for old in list(self._kept)[:-_KEPT]:
            del self._kept[old]
        for index in batch.dropped:
            self._skip(index, "the plan leaves it out")
        if batch.reason and not self._lacked:
            self._lacked = True
            self._tell(f"step {batch.step} does not fit: {batch.reason} (of later steps `reason` "
                       "of their batches tells)")
        for text in batch.warnings:
            self._tell(text)

    def _batch_of(self, step: int, sent: list[int],
                  document: Answer, planned_s: float) -> PlannedBatch:
        """The batch of a plan for the samples `sent`, as this rank has it."""
        if not document["batches"]:
            raise SlimpackError(f"step {step} has no plan: {_named(document['reason'], sent)}", 1)
        batch = PlannedBatch()
        batch.step, batch.planned_s, batch.waited_s = step, planned_s, 0.0
        batch.plan = plan = document["batches"][0]
        reason = document.get("reason")
        batch.reason = _named(reason, sent) if reason else None
        # What is lacking is a warning, too, without the settings that would help.
        lack = reason.split(";")[0] if reason else None
        batch.warnings = [text for text in document.warnings if text.split(";")[0] != lack]
        batch.delayed = [sent[i] for i in plan["delayed"]]
        left_out = {*plan["delayed"], *plan["dropped"]}
        trained = {sample["id"] for sample in plan["samples"]} - left_out
        batch.samples = [sent[i] for i in sorted(trained)]
        batch.dropped = [sent[i]
            for i in range(len(sent)) if i not in trained and i not in plan["delayed"]]
        batch.extend(self._packs(step, sent, plan, "forward_packs"))
        batch.backward = self._packs(step, sent, plan, "backward_packs")
        batch.actions = next(stage["actions"] for stage in plan["stages"]
                             if (stage["dp"], stage["pp"]) == (self.place.dp, self.place.pp))
        return batch

    def _packs(self, step: int, sent: list[int], plan: dict[str, Any], side: str) -> list[Pack]:
        packs, cp = [], self.scenario["parallel"]["cp"]
        whole = self.scenario["strategy"].get("cp_sharding") == "sequence"
        for number, pack in enumerate(plan[side]):
            if self.place.dp not in pack["dp"]:
                continue
            slices = []
            for cut in pack["slices"]:
                sample = plan["samples"][cut["sample"]]
                slices.append(Slice(sent[sample["id"]], cut["begin"], cut["tokens"],
                                    cut.get("computed", cut["tokens"]), sample["tokens"],
                                    tuple(cut["zone"]) if "zone" in cut else None))
            bounds = list(itertools.accumulate((part.computed for part in slices), initial=0))
            part = pack["dp"].index(self.place.dp) * cp + self.place.cp
            packs.append(Pack(step, number, tuple(pack["dp"]), tuple(slices),
                              ranges_of(bounds, part, len(pack["dp"]) * cp, whole),
                              pack.get("microbatch", number), pack.get("gathers", False)))
        return packs


class _Run:
    """One iteration: a thread for each planner, and what they have ready for the caller."""

    def __init__(self, sampler: PlannedBatchSampler, chunks: list[list[int]], step: int,
                 late: list[list[int]]):
        self._sampler, self._chunks, self._next = sampler, chunks, step
        self._turn = threading.Condition()
        self._ready: dict[int, Union[PlannedBatch, Exception]] = {}
        self._ended = [False] * len(late)
        self._closed = False
        self._threads = [
            threading.Thread(target=self._plan, daemon=True,
                             args=(k, step + (k - step) % len(late), list(chain)))
            for k, chain in enumerate(late)]
        for thread in self._threads:
            thread.start()

    def _plan(self, k: int, step: int, late: list[int]) -> None:
        while True:
            fresh = self._chunks[step] if step < len(self._chunks) else []
            sent = fresh + late
            with self._turn:
                self._turn.wait_for(lambda: self._closed or step < self._next + self._sampler.ahead)
                if self._closed or not sent:
                    self._ended[k] = True
                    self._turn.notify_all()
                    return
            done: Union[PlannedBatch, Exception]
            try:
                done = batch = self._plan_step(self._sampler.planners[k], step, sent)
                if not fresh and len(batch.delayed) == len(sent):  # they would be for ever
                    batch.dropped, batch.delayed = batch.dropped + batch.delayed, []
                late = batch.delayed
            except Exception as error:
                done = error
            with self._turn:
                self._ready[step] = done
                self._turn.notify_all()
            step += len(self._ended)

    def _plan_step(self, planner: Planner, step: int, sent: list[int]) -> PlannedBatch:
        begun = time.monotonic()
        document = planner.plan([self._sampler._lengths[i] for i in sent])
        return self._sampler._batch_of(step, sent, document, time.monotonic() - begun)

    def take(self) -> Optional[PlannedBatch]:
        """The next batch once it is there; None at the end."""
        workers = len(self._ended)
        with self._turn:
            while not all(self._ended) or self._ready:
                if self._next in self._ready:
                    done = self._ready.pop(self._next)
                    self._next += 1
                    self._turn.notify_all()
                    if isinstance(done, Exception):
                        raise done
                    return done
                if self._ended[self._next % workers]:
                    self._next += 1
                    self._turn.notify_all()
                else:
                    self._turn.wait()
        return None

    def close(self) -> None:
        """Ends the threads; a plan that is being made is waited for."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        for thread in self._threads:
            thread.join()


class PackedDataset:
    """Packs as tensors: data set of a loader whose batch sampler is a PlannedBatchSampler.

    documents[i] has the token ids of sample i: a list, a NumPy array or a tensor of one dimension,
    and so are the values of a pack {name: value}, with as many `rows` as this rank holds of it:
        tokens [rows], labels [rows] (the next token of the sample; `ignore` at its end and in
        padding), position_ids [rows], cu_seqlens and cu_seqlens_k [slices + 1] (of the whole pack),
        pack (the Pack), skipped (samples that could not be read).
    A sample that raises, or is shorter than was planned, is told once as a warning; its rows stay, as
    all ranks count on them, with `pad` tokens and ignored labels.
    """

    def __init__(self, documents: Any, *, pad: int = 0, ignore: int = -100):
        self.documents, self.pad, self.ignore = documents, pad, ignore
        self._open: dict[int, Any] = {}  # samples of which later slices may come
        self._told: set[int] = set()  # samples that could not be read

    def __len__(self) -> int:
        return len(self.documents)

    def __getitems__(self, packs: Sequence[Pack]) -> list[dict[str, Any]]:
        return [self[pack] for pack in packs]

    def __getitem__(self, pack: Pack) -> dict[str, Any]:
        tokens: list[int] = []
        labels: list[int] = []
        skipped, like = [], None
        for part in pack.slices:
            end = part.begin + part.tokens
            try:
                sample = self._read(part)
                here = _listed(sample[part.begin:end])
                there = _listed(sample[part.begin + 1:min(end + 1, part.length)])
                like = sample
            except Exception as error:
                if part.sample not in self._told:
                    self._told.add(part.sample)
                    _warn(f"sample {part.sample} is skipped: {error}")
                skipped.append(part.sample)
                here, there = [self.pad] * part.tokens, []
            tokens += here + [self.pad] * (part.computed - part.tokens)
            labels += there + [self.ignore] * (part.computed - len(there))
        rows = [at for begin, end in pack.ranges for at in range(begin, end)]
        positions = pack.position_ids
        values = {"tokens": [tokens[at] for at in rows], "labels": [labels[at] for at in rows],
                  "position_ids": [positions[at] for at in rows], "cu_seqlens": pack.cu_seqlens,
                  "cu_seqlens_k": pack.cu_seqlens_k}
        return {**{name: _like(value, like) for name, value in values.items()}, "pack": pack,
                "skipped": skipped}

    def _read(self, part: Slice) -> Any:
        sample = self._open.pop(part.sample, None)
        if sample is None:
            sample = self.documents[part.sample]
            if len(sample) < part.length:
                raise ValueError(f"{len(sample)} tokens, planned were {part.length}")
        if part.begin + part.tokens < part.length:
            self._open[part.sample] = sample
        return sample


def _count(name: str, value: Any, otherwise: str = "") -> int:
    """A whole number of at least 1."""
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ArgumentError(f"{name}: expected a whole number of at least 1{otherwise}, "
                            f"got {value!r}")
    return count


def _named(reason: str, sent: list[int]) -> str:
    """The reason with samples by their index in the data set, not in the batch."""
    return re.sub(r"\bsample (\d+) of ", lambda found: f"sample {sent[int(found[1])]} of ", reason)


def _warn(text: str) -> None:
    """A warning at the line of the caller that is no line of this file."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def _listed(tokens: Any) -> list[int]:
    return tokens.tolist() if hasattr(tokens, "tolist") else list(tokens)


def _like(values: list[int], sample: Any) -> Any:
    """The list as what the samples are; labels may be negative."""
    if hasattr(sample, "new_tensor"):
        import torch
        return torch.tensor(values, dtype=torch.int64)
    if type(sample).__module__ == "numpy":
        import numpy
        return numpy.asarray(values, dtype=numpy.int64)
    return values
