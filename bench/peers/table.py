"""The comparison as a table."""
import itertools


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def by_row(lines):
    for _, group in itertools.groupby(lines, key=lambda line: line["row"]):
        yield list(group)


def name_of(line):
    return line["contestant"] if line["peer"] == "weft" else f"{line['contestant']} {line['version']}"


def fastest(lines):
    """The line with the best median; None where there is none."""
    return max(lines, key=lambda line: -line["median"] if line["unit"] == "ms" else line["median"], default=None)


def ratio_of(line):
    """"1.2 x", or with two of Weft's precisions "1.2 x / 1.5 x"."""
    return " / ".join(f"{ratio:.2f} x" for ratio in (line.get("weft_is") or {}).values())


def text(lines):
    out = []
    for group in by_row(lines):
        first = group[0]
        better = "lower is better" if first["unit"] == "ms" else "higher is better"
        out.append(f"{first['what']} ({first['unit']}, {better})")
        for line in group:
            if "refused" in line:
                out.append(f"  {name_of(line):<42} none: {line['refused']}")
                continue
            spread = f"{number(line['low'])} to {number(line['high'])}"
            share = f"{100 * line['share']:.0f} % of the ceiling" if line["share"] else ""
            ratio = f"Weft is {ratio_of(line)}" if line["weft_is"] else ""
            out.append(f"  {name_of(line):<42} {number(line['median']):>8}  {spread:<18} {share:<20} {ratio}".rstrip())
        out.append("")
    return "\n".join(out)
