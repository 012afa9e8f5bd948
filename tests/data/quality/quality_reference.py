"""The measures of data/quality/judgement.py in plain Python, over strings."""

import re
from collections import Counter
from dataclasses import dataclass, field

from data.quality.characters import (
    CLASS,
    DIGIT,
    EXTEND,
    LETTER,
    MARK,
    RUN_MARK,
    SINGLE,
    SPACE,
    SYMBOL,
    character_classes,
)
from data.quality.phrases import STOP_WORDS

SPACES = " \t\n\r\v\f"
TERMINALS = ".!?‼‽。！．？｡⸮։؝؞؟۔।॥၊။።፧፨។៕᠃᠉⁇⁈⁉܀܁܂"
TITLES = {
    "Mr",
    "Mrs",
    "Ms",
    "Dr",
    "St",
    "Jr",
    "Prof",
    "Rev",
    "Gen",
    "Gov",
    "Sen",
    "Rep",
    "Mt",
    "Co",
    "Inc",
    "Ltd",
    "Corp",
}
MONTHS = {"Jan", "Feb", "Mar", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec"}
ABBREVIATIONS = {*TITLES, *MONTHS, "vs"}
PHRASES = ["terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"]
CITATION = re.compile(r"\[[0-9]*\]|\[edit\]|\[citation needed\]")


def class_of(character: str) -> int:
    table = character_classes()
    return int(table[ord(character)]) & CLASS if ord(character) < len(table) else SINGLE


@dataclass
class Units:
    """The units of a line, which of them are words, and what else was met."""

    texts: list[str] = field(default_factory=list)
    is_word: list[bool] = field(default_factory=list)
    sentences: int = 0
    sentence_begins: bool = True

    def add_word(self, text: str) -> None:
        if text:
            self.texts.append(text)
            self.is_word.append(True)
            self.sentences += self.sentence_begins
            self.sentence_begins = False

    def add_mark(self, text: str) -> None:
        self.texts.append(text)
        self.is_word.append(False)
        if text == "." or text[0] in "!?":
            self.sentence_begins = True


def one_mark(marks: str) -> str:
    """The first mark of a run of them."""
    run = re.match(r"(.)\1*", marks, re.DOTALL)[0]
    merges = class_of(run[0]) == RUN_MARK or run[0] == "." or len(run) >= 3
    return run if ord(run[0]) < 128 and merges else run[0]


def parts_word(word: str, marks: str, behind: str) -> bool:
    mark, letter_behind = marks[0], class_of(behind[0]) in (LETTER, SINGLE)
    if mark in "'’" and (mark == "’" or len(marks) == 1):
        return re.match(r"(s|t|re|ve|ll|d|m|S|T)(?![A-Za-z0-9])", behind) is not None
    if ord(mark) >= 128:
        if mark == "—" and len(marks) > 1 or mark == "…" or class_of(mark) == SYMBOL:
            return True
        return letter_behind and mark in "‐‑–—"
    if len(marks) > 1:
        return marks.startswith("..") or marks.startswith("--") and letter_behind
    if mark == ".":
        return "a" <= word[-1] <= "z" and "A" <= behind[0] <= "Z"
    if mark == "-" and word[-1] in "0123456789" and behind[0] in "0123456789":
        return True
    if mark == ",":
        return letter_behind and word[-1] not in "0123456789"
    return letter_behind and mark in "-/:<=>~"


def kept_behind(word: str, marks: str) -> str:
    """The marks at the beginning of `marks`, which end a run, that belong to the word."""
    if class_of(marks[0]) == RUN_MARK:
        return one_mark(marks)
    if marks[0] != "." or marks.startswith(".."):
        return ""
    if "A" <= word[-1] <= "Z":
        return "" if "A" <= word[-2:-1] <= "Z" else "."
    if not "a" <= word[-1] <= "z":
        return ""
    return "." if len(word) == 1 or word[-2] == "." or word in ABBREVIATIONS else ""


def opens_word(marks: str, parted: bool) -> bool:
    if parted:
        return marks in ("'", "’")
    if marks.startswith("..") and len(marks) > 1:
        return False
    return all(mark == "." or class_of(mark) == RUN_MARK for mark in marks)


def units(line: str) -> Units:
    found, word, address, i = Units(), "", False, 0
    while i < len(line):
        kind = class_of(line[i])
        if kind in (LETTER, DIGIT) or kind == EXTEND and word:
            word += line[i]
            i += 1
            continue
        if MARK <= kind <= SYMBOL:
            stop = i
            while stop < len(line) and MARK <= class_of(line[stop]) <= SYMBOL:
                stop += 1
            marks, behind, i = line[i:stop], line[stop:], stop
            followed = bool(behind) and class_of(behind[0]) != SPACE
            if word and followed and (address or not parts_word(word, marks, behind)):
                address |= marks == "://"
                word += marks
                continue
            if word and not followed:
                kept = kept_behind(word, marks)
                word, marks = word + kept, marks[len(kept) :]
                if not marks:
                    continue
            parted = bool(word)
            found.add_word(word)
            word = ""
            while marks:
                if followed and opens_word(marks, parted):
                    word = marks
                    break
                mark = one_mark(marks)
                found.add_mark(mark)
                marks = marks[len(mark) :]
            continue
        found.add_word(word)
        word = ""
        address = address and kind != SPACE
        i += 1
        if kind == SINGLE:
            stop = i
            while stop < len(line) and class_of(line[stop]) == EXTEND:
                stop += 1
            found.add_word(line[i - 1 : stop])
            i = stop
    found.add_word(word)
    return found


def runs(line: str) -> list[str]:
    """What stands between white space of any kind."""
    return "".join(" " if class_of(c) == SPACE else c for c in line).split(" ")


def kept_line(line: str) -> str | None:
    """What C4 makes of a line that it keeps, or None."""
    words = [run for run in runs(line) if run]
    if len(words) < 3 or any(len(word.encode()) > 1000 for word in words):
        return None
    cited = CITATION.sub("", line)
    stripped = cited.rstrip(SPACES)
    if not stripped or stripped[-1] not in ".!?\"'" or stripped.endswith("..."):
        return None
    return cited


def phrase_begins(line: str, phrase: str) -> bool:
    """Whether a phrase stands at the beginning of a run of ASCII letters and digits."""
    return re.search(rf"(?<![a-z0-9]){phrase}", line, re.IGNORECASE | re.ASCII) is not None


def repetition(found: list[str], characters: int) -> dict[str, float]:
    result = {}
    for n in (2, 3, 4):
        grams = [tuple(found[i : i + n]) for i in range(len(found) - n + 1)]
        counts = Counter(grams)
        best = max(counts, key=lambda gram: (counts[gram], -grams.index(gram)), default=())
        covered = counts[best] * (sum(map(len, best)) + n - 1) if counts[best] > 1 else 0
        result[f"share of the top {n}-gram"] = covered / max(1, characters)
    for n in range(5, 11):
        seen, covered, i = set(), 0, 0
        while i <= len(found) - n:
            gram = tuple(found[i : i + n])
            covered += sum(map(len, gram)) if gram in seen else 0
            i += n if gram in seen else 1
            seen.add(gram)
        result[f"share of repeated {n}-grams"] = covered / max(1, characters)
    return result


def measures(text: str) -> dict[str, float]:
    lines = [line.strip(SPACES) for line in text.split("\n")]
    paragraphs = [
        "\n".join(line.strip(SPACES) for line in paragraph.split("\n") if line.strip(SPACES))
        for paragraph in re.split(rf"\n[{SPACES}]*\n", text)
    ]
    paragraphs = [paragraph for paragraph in paragraphs if paragraph]
    lines = [line for line in lines if line]
    cut = [units(line) for line in lines]
    found = [unit for line in cut for unit in line.texts]
    words = [unit for line in cut for unit, is_word in zip(line.texts, line.is_word, strict=True) if is_word]
    lettered = [word for word in words if any(class_of(c) in (LETTER, SINGLE) for c in word)]
    ellipses = len(re.findall(r"\.\.\.|…", text))
    repeated = [n - 1 for n in Counter(lines).values()]
    repeated_paragraphs = [n - 1 for n in Counter(paragraphs).values()]
    kept = [
        (line, cut_line.sentences) for line, cut_line in zip(lines, cut, strict=True) if kept_line(line) is not None
    ]
    plain = [pair for pair in kept if not phrase_begins(pair[0], "lorem ipsum")]
    plain = [pair for pair in plain if not phrase_begins(pair[0], "javascript")]
    num_units, num_words, num_lines = max(1, len(found)), max(1, len(words)), max(1, len(lines))
    characters, num_paragraphs = max(1, len(text)), max(1, len(paragraphs))
    letters = [c for c in text if class_of(c) in (LETTER, DIGIT, SINGLE)]
    return {
        "words": len(words),
        "mean word length": sum(map(len, words)) / num_words,
        "share of words with a letter": len(lettered) / num_words,
        "share of units with a letter": len(lettered) / num_units,
        "hash marks per unit": text.count("#") / num_units,
        "ellipses per unit": ellipses / num_units,
        "distinct stop words": len(set(STOP_WORDS) & set(words)),
        "share of letters and digits": len(letters) / max(1, sum(map(len, found))),
        "share of letters beyond ASCII": 1 - sum(c.isascii() for c in letters) / max(1, len(letters)),
        "share of letters without word spaces": sum(class_of(c) == SINGLE for c in letters) / max(1, len(letters)),
        "mean characters of a line": sum(map(len, lines)) / num_lines,
        "characters of the longest line": max(map(len, lines), default=0),
        "share of lines ending in punctuation": sum(line[-1] in TERMINALS for line in lines) / num_lines,
        "share of lines ending in an ellipsis": sum(line.endswith(("...", "…")) for line in lines) / num_lines,
        "share of lines with a bullet": sum(line[0] in "-•" for line in lines) / num_lines,
        "share of short lines": sum(len(line) <= 30 for line in lines) / num_lines,
        "newlines per unit": text.count("\n") / num_units,
        "share of repeated lines": sum(repeated) / num_lines,
        "share of text in repeated lines": sum(len(line) * (n - 1) for line, n in Counter(lines).items()) / characters,
        "share of repeated paragraphs": sum(repeated_paragraphs) / num_paragraphs,
        "share of text in repeated paragraphs": sum(len(p) * (n - 1) for p, n in Counter(paragraphs).items())
        / characters,
        "kept lines with lorem ipsum": len(kept) - len([p for p in kept if not phrase_begins(p[0], "lorem ipsum")]),
        "kept lines with a curly bracket": sum("{" in line for line, _ in plain),
        "sentences in kept lines": sum(sentences for line, sentences in plain if is_clean(line)),
        **repetition(found, len(text)),
    }


def is_clean(line: str) -> bool:
    """Whether C4 keeps a line with enough words and a sentence's end."""
    return "{" not in line and not any(phrase_begins(line, p) for p in [*PHRASES, "javascript", "lorem ipsum"])


def edited(text: str) -> str:
    """The lines that C4 keeps."""
    lines = [line.strip(SPACES) for line in text.split("\n")]
    kept = [kept_line(line) for line in lines if line and is_clean(line)]
    return "\n".join(line for line in kept if line is not None)
