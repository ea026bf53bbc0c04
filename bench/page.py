"""Tables of results in pages of docs/, between marks: `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""
import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def markdown(head, rows):
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


def put(text, name, table, page):
    """The page's text with the table between the marks of that name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if not 0 <= text.find(begin) < text.find(end):
        sys.exit(f"{page}: has no marks {begin} and {end}")
    return text[:text.index(begin)] + f"{begin}\n{table}\n" + text[text.index(end):]


def parser(description, page):
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--write", action="store_true", help=f"into {page}")
    made.add_argument("--check", action="store_true", help=f"whether {page} has these tables; exit status 1: it has not")
    return made


def finish(arguments, page, tables):
    """Prints the tables, {name: table}; with --write or --check what the options say."""
    if not arguments.write and not arguments.check:
        return print("\n\n".join(tables.values()))
    path = ROOT / page
    old = new = path.read_text()
    for name, table in tables.items():
        new = put(new, name, table, page)
    if arguments.write:
        path.write_text(new)
    elif new != old:
        sys.exit(f"{page}: its tables are not those of the results; {pathlib.Path(sys.argv[0]).name} --write puts them there")
