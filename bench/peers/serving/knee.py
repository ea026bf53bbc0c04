"""Goodput and time to first token at rising rates, as an SVG that reads in light and dark."""
from serving import figures

SHARES = (0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2)
WIDTH, HEIGHT, LEFT, TOP = 560, 240, 56, 40
STYLE = """
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #59636e }
  .card { fill: #ffffff; stroke: #d0d7de } .title { fill: #1f2328; font-weight: 600; font-size: 15px }
  .axis { stroke: #afb8c1 } .good { stroke: #0969da; fill: none; stroke-width: 2 }
  .first { stroke: #bc4c00; fill: none; stroke-width: 2 } .goodtext { fill: #0969da } .firsttext { fill: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d } .title { fill: #f0f6fc } text { fill: #9198a1 } .axis { stroke: #656c76 }
    .good { stroke: #4493f8 } .first { stroke: #f0883e } .goodtext { fill: #4493f8 } .firsttext { fill: #f0883e }
  }"""


def measure(machine, contestant, options):
    """The highest goodput, and [(rate, goodput, P90 first token in s)], of prompts of 256 tokens and answers of 64."""
    shape = ["--prompt-tokens", 256, "--output-tokens", 64]
    with machine.start(contestant) as server:
        many = machine.play(server, "--requests", 40 if options.quick else 100, "--at-once", *shape)
    capacity = len(many) / max(o["last"] for o in many)
    points = []
    for share in SHARES:
        rate = share * capacity
        with machine.start(contestant) as server:
            outcomes = machine.play(server, "--requests", max(8, round(rate * (8 if options.quick else 25))), "--rate", rate, *shape)
        points.append((rate, figures.goodput(outcomes, 5, 0.15), figures.percentile(figures.first_tokens(outcomes), 0.9)))
    return {"goodput": max(good for _, good, _ in points), "points": points}


def line(points, kind):
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def picture(points, about):
    most_rate = max(rate for rate, _, _ in points)
    scales = [max(point[i] for point in points) or 1 for i in (1, 2)]

    def at(rate, value, most):
        return LEFT + WIDTH * rate / most_rate, TOP + HEIGHT * (1 - value / most)

    bottom, right = TOP + HEIGHT, LEFT + WIDTH
    out = [f'<text x="16" y="24" class="title">Weft under a rising rate: 256 tokens in, 64 out</text>',
           f'<path class="axis" fill="none" d="M{LEFT},{TOP} V{bottom} H{right} V{TOP}"/>',
           line([at(rate, good, scales[0]) for rate, good, _ in points], "good"),
           line([at(rate, first, scales[1]) for rate, _, first in points], "first"),
           f'<text x="{LEFT + 8}" y="{TOP + 12}" class="goodtext">goodput, up to {scales[0]:.1f} req/s</text>',
           f'<text x="{LEFT + 8}" y="{TOP + 28}" class="firsttext">P90 first token, up to {scales[1]:.1f} s</text>']
    for rate, _, _ in points:
        x = at(rate, 0, 1)[0]
        out.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{rate:.1f}</text>')
    out.append(f'<text x="{right}" y="{bottom + 34}" text-anchor="end">requests a second; {about["machine"]}, '
               f'{about["threads"]} threads</text>')
    width, height = right + 24, bottom + 48
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
                      f'height="{height}" role="img" aria-label="Goodput and first token by rate">',
                      f"<style>{STYLE}\n</style>",
                      f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6" class="card"/>', *out,
                      "</svg>"]) + "\n"
