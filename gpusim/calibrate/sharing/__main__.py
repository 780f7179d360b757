"""Print the published pairs with what the engine says of them, and the errors by way of sharing."""

from __future__ import annotations

from statistics import median

from gpusim.calibrate.sharing.pairs import predictions, published, table


def main() -> None:
    pairs = published()
    print("\n".join(table(pairs)))
    off = [abs(said / pair.measured - 1) for pair, said in zip(pairs, predictions(pairs), strict=True)]
    for of in dict.fromkeys((pair.source, pair.tenancy.partition("(cap")[0], pair.statistic) for pair in pairs):
        here = [e for e, p in zip(off, pairs, strict=True) if (p.source, p.tenancy.partition("(cap")[0], p.statistic) == of]
        print(f"{', '.join(of)}: median error {median(here):.0%}, largest {max(here):.0%}, {len(here)} rows")


if __name__ == "__main__":
    main()
