"""The comparison as a table."""
import itertools
import statistics

from rows import TIMES

SLOWER_BELOW = 0.95  # of another build's speed: such a row is marked


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def by_row(lines):
    for _, group in itertools.groupby(lines, key=lambda line: line["row"]):
        yield list(group)


def name_of(line):
    return line["contestant"] if line["peer"] == "weft" else f"{line['contestant']} {line['version']}"


def fastest(lines):
    """The line with the best median; None where there is none."""
    return max(lines, key=lambda line: -line["median"] if line["unit"] in TIMES else line["median"], default=None)


def ratio_of(line):
    """"1.2 x", or with two of Weft's precisions "1.2 x / 1.5 x"."""
    digits = 3 if line["peer"] == "against" else 2
    return " / ".join(f"{ratio:.{digits}f} x" for ratio in (line.get("weft_is") or {}).values())


def against_ratios(lines):
    """This build's speed by the other one's, above 1 where this one is faster: {(row, contestant): ratio}."""
    return {(line["row"], name): ratio for line in lines if line["peer"] == "against"
            for name, ratio in (line.get("weft_is") or {}).items()}


def mark_of(line):
    return "  <-- slower" if any(ratio < SLOWER_BELOW for ratio in against_ratios([line]).values()) else ""


def peers_summary(lines):
    """Of each peer that stands in several rows: the geometric mean of how many times faster Weft is, and the lowest."""
    ratios = {}
    for line in lines:
        for weft, ratio in (line.get("weft_is") or {}).items():
            ratios.setdefault((weft, line["contestant"]), []).append((ratio, line["row"]))
    return "\n".join(f"{weft} by {peer}, geometric mean of {len(list_)} rows: "
                     f"{statistics.geometric_mean(ratio for ratio, _ in list_):.2f} x; lowest {min(list_)[0]:.2f} x, {min(list_)[1]}"
                     for (weft, peer), list_ in ratios.items() if len(list_) > 1)


def against_summary(lines):
    """The geometric mean over the rows, how many are slower, and what could not be compared."""
    ratios = against_ratios(lines)
    refused = [f"{line['row']}, {line['contestant']}: {line['refused']}" for line in lines if "refused" in line]
    out = [f"not compared: {reason}" for reason in refused]
    if ratios:
        slower = sum(ratio < SLOWER_BELOW for ratio in ratios.values())
        out.append(f"geometric mean of {len(ratios)} ratios: {statistics.geometric_mean(ratios.values()):.3f} x; lowest "
                   f"{min(ratios.values()):.3f}, highest {max(ratios.values()):.3f}, {slower} below {SLOWER_BELOW}")
    return "\n".join(out)


def text(lines):
    out = []
    for group in by_row(lines):
        first = group[0]
        better = "lower is better" if first["unit"] in TIMES else "higher is better"
        out.append(f"{first['what']} ({first['unit']}, {better})")
        for line in group:
            if "refused" in line:
                out.append(f"  {name_of(line):<42} none: {line['refused']}")
                continue
            spread = f"{number(line['low'])} to {number(line['high'])}"
            share = f"{100 * line['share']:.0f} % of the ceiling" if line["share"] else ""
            ratio = f"Weft is {ratio_of(line)}{mark_of(line)}" if line["weft_is"] else ""
            out.append(f"  {name_of(line):<42} {number(line['median']):>8}  {spread:<18} {share:<20} {ratio}".rstrip())
        out.append("")
    return "\n".join(out)
