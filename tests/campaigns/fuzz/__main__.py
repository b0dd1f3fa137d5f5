"""The command line: `python -m tests.campaigns.fuzz --minutes 10`; exit status 1 where anything did not hold.

`--mutations 10000` tries so many mutated snapshots and records of logs, and nothing else.
"""

from __future__ import annotations

import argparse

from tests.campaigns.fuzz.parts import PARTS, SHARES
from tests.campaigns.fuzz.stored import mutations


def main() -> None:
    """Run the parts and print what came of them."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.fuzz",
        description="Hostile input to every decoder, and to the server's connections.",
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="over all parts")
    parser.add_argument("--only", choices=sorted(PARTS), action="append", help="this part alone; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of what is tried")
    parser.add_argument(
        "--mutations", type=int, metavar="COUNT", help="so many mutated snapshots and records of logs, and nothing else"
    )
    options = parser.parse_args()
    if options.mutations is not None:
        tally, reports = mutations(options.mutations, options.seed)
        for report in reports:
            print(*report.lines(), sep="\n")
        print(tally)
        raise SystemExit(0 if tally.good and tally.tried == options.mutations else 1)
    names = options.only or list(PARTS)
    whole = sum(SHARES[name] for name in names)
    tried, wrong = 0, 0
    for name in names:
        report = PARTS[name](60 * options.minutes * SHARES[name] / whole, options.seed)
        print(*report.lines(), sep="\n", flush=True)
        tried += report.tried
        wrong += len(report.wrong) + (not report.counts)
    print(f"{tried} tried in all, {wrong} did not hold")
    raise SystemExit(0 if wrong == 0 else 1)


if __name__ == "__main__":
    main()
