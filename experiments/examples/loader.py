#!/usr/bin/env python3
"""A data loader that plans ahead, by the package slimpack: trains for show, with steps that sleep.

    sampler = slimpack.PlannedBatchSampler(lengths, "scenario.json", rank=rank)
    for packs in sampler:           # those in which this rank has rows: pack.ranges
        for pack in packs: ...      # pack.slices, pack.cu_seqlens, pack.position_ids: of all rows
    print(sampler.figures())

While a step runs, threads of the sampler plan the next ones; it waits only for a plan that is not
there yet.

    loader.py experiments/demo.json --batches 8 --samples 512 --step-ms 500
"""
import argparse
import random
import sys
import time

import slimpack


def random_lengths(samples, seed):
    """Documents of very different lengths: half of them shorter than 600 tokens, few of 30,000."""
    draw = random.Random(seed)
    return [min(32768, 1 + int(draw.lognormvariate(6.4, 1.4))) for _ in range(samples)]


def main():
    parser = argparse.ArgumentParser(description="Plan batches while steps run.")
    parser.add_argument("scenario")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--samples", type=int, default=64, help="of a batch")
    parser.add_argument("--workers", type=int, default=1, help="threads that plan")
    parser.add_argument("--step-ms", type=float, help="of a step (default: as predicted)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sampler = slimpack.PlannedBatchSampler(
        random_lengths(args.batches * args.samples, args.seed), args.scenario,
        set=dict(setting.split("=", 1) for setting in args.set), rank=0,
        samples_per_batch=args.samples, seed=args.seed, workers=args.workers,
        ahead=args.workers + 1)
    print("step  samples  packs  predicted ms  planned ms  waited ms")
    for batch in sampler:
        print(f"{batch.step:4}  {len(batch.samples):7}  {len(batch.plan['forward_packs']):5}  "
              f"{batch.plan['predicted_ms']:12.1f}  {1e3 * batch.planned_s:10.1f}  "
              f"{1e3 * batch.waited_s:9.1f}", flush=True)
        time.sleep(1e-3 * (batch.plan["predicted_ms"] if args.step_ms is None else args.step_ms))
    told = sampler.figures()
    print(f"{told['steps']} plans: waited {1e3 * told['first_s']:.1f} ms for the first; planned "
          f"{1e3 * told['planned_s']:.1f} ms behind steps, waited {1e3 * told['waited_s']:.1f} ms, "
          f"{100.0 * told['hidden']:.1f} % hidden")


if __name__ == "__main__":
    try:
        main()
    except slimpack.SlimpackError as error:
        sys.exit(f"error: {error}")
