"""Figures of outcomes (weft bench serve --outcomes)."""
import math


def percentile(values, share):
    """The smallest value that so many are not above; nan where there is none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def complete(outcomes):
    return [o for o in outcomes if o["complete"]]


def first_tokens(outcomes):
    return [o["first"] - o["scheduled"] for o in complete(outcomes)]


def waits(outcomes, until):
    """Seconds to the first token, of all requests; who had none has waited until then, and waits for longer."""
    return [(o["first"] if o["first"] >= 0 else until) - o["scheduled"] for o in outcomes]


def gaps(outcomes):
    return [gap for o in complete(outcomes) for gap in o["gaps"]]


def token_times(outcome):
    """When its events came."""
    times = [outcome["first"]]
    for gap in outcome["gaps"]:
        times.append(times[-1] + gap)
    return times


def throughput(outcomes):
    return sum(o["tokens"] for o in complete(outcomes)) / max(o["last"] for o in complete(outcomes))


def decode_rate(outcomes):
    """Tokens a second while all of the streams decode."""
    begin, end = max(o["first"] for o in outcomes), min(o["last"] for o in outcomes)
    if end <= begin:
        return math.nan
    return sum(begin < t <= end for o in outcomes for t in token_times(o)) / (end - begin)


def gaps_within(outcomes, begin, end):
    """Gaps that ended between two moments, which are seconds since 1970."""
    found = []
    for o in outcomes:
        if o["first"] < 0:
            continue
        times = [o["start"] + t for t in token_times(o)]
        found += [later - earlier for earlier, later in zip(times, times[1:]) if begin < later <= end]
    return found


def goodput(outcomes, first_s, gap_s):
    """Requests a second that begin and go on in time."""
    good = [o for o in complete(outcomes) if o["first"] - o["scheduled"] <= first_s
            and (o["last"] - o["first"]) / max(1, o["tokens"] - 1) <= gap_s]
    ends = [o["end"] for o in outcomes if o["end"] >= 0]
    return len(good) / max(ends) if ends else 0.0


def late(outcomes, now, limit):
    """How many have waited longer than that for their first token, or wait so long by now."""
    return sum((o["first"] if o["first"] >= 0 else now) - o["scheduled"] > limit for o in outcomes)


def holds(outcomes, first_s, gap_s):
    """Whether nine of ten first tokens and nine of ten gaps come in time, and every request is answered."""
    return (len(complete(outcomes)) == len(outcomes) and percentile(first_tokens(outcomes), 0.9) <= first_s
            and percentile(gaps(outcomes), 0.9) <= gap_s)
