"""What counts as personal data, in plain regular expressions: slow, and what the kernels are compared with.

`spans[kind](text)` gives the (begin, end) of what is found, in characters.
"""

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress

from data.pii.addresses import COUNTRY_DOMAINS, GENERIC_DOMAINS, LEAST_IP_DIGITS
from data.pii.kinds import PiiKind
from data.pii.numbers import COUNTRY_CODES, IBAN_LENGTHS
from data.pii.secrets import JWT, MARKERS, PEM

Spans = list[tuple[int, int]]

RESERVED = [
    ipaddress.ip_network(block)
    for block in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
        *("192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
        *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
    )
]
ALONE_BEFORE = re.compile(r"(?<![A-Za-z0-9_.\-+/#$])")
ALONE_BEHIND = re.compile(r"(?![A-Za-z0-9_]|[.\-/:][A-Za-z0-9_])")


def in_order(candidates: list[tuple[int, int]]) -> Spans:
    """The candidates from left to right, without those that begin inside one before."""
    found: Spans = []
    for begin, end in candidates:
        if not found or begin >= found[-1][1]:
            found.append((begin, end))
    return found


def emails(text: str) -> Spans:
    found: Spans = []
    for at in (m.start() for m in re.finditer("@", text)):
        floor = found[-1][1] if found else 0
        begin = at
        while begin > floor and re.match(r"[A-Za-z0-9._%+'-]", text[begin - 1]):
            begin -= 1
        if at < floor or at - begin > 64 or re.search(r"(/|//[A-Za-z0-9._%+'-]{0,62}:)\Z", text[:begin]):
            continue
        local = re.sub(r"\A[^A-Za-z0-9]+", "", text[begin:at])
        if not local or local.endswith(".") or ".." in local or local == "git":
            continue
        if end := domain_end(text, at + 1):
            found.append((at - len(local), end))
    return found


def domain_end(text: str, begin: int) -> int:
    found, labels, i = 0, [], begin
    while m := re.compile(r"[A-Za-z0-9-]+").match(text, i):
        label = m[0].lower()
        if len(label) > 63 or label[0] == "-" or label[-1] == "-" or m.end() > begin + 253:
            break
        known = label in COUNTRY_DOMAINS.split() or label in GENERIC_DOMAINS.split() or re.match("xn--.", label)
        if labels and known and text[m.end() : m.end() + 1] not in ("_", "("):
            if label in ("com", "net", "org", "edu") and labels[-1] == "example":
                return 0
            found = m.end()
        labels.append(label)
        if text[m.end() : m.end() + 1] != "." or m.end() + 1 > begin + 253:
            break
        i = m.end() + 1
    return found


def is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    if parsed.version == 6 and parsed not in ipaddress.ip_network("2000::/3"):
        return False
    return not any(parsed in block for block in RESERVED if block.version == parsed.version)


def ips(text: str) -> Spans:
    octet = r"(?:0|[1-9]\d{0,2})"
    ipv4 = re.compile(
        rf"(?<![A-Za-z0-9_.\-])(?=({octet}(?:\.{octet}){{3}})(?![A-Za-z0-9_]|[.\-][A-Za-z0-9_]))", re.ASCII
    )
    found = []
    for m in ipv4.finditer(text):
        before = text[: m.start()]
        if max(map(int, m[1].split("."))) > 255 or len(m[1]) - 3 < LEAST_IP_DIGITS or not is_public(m[1]):
            continue
        if re.search(r"((?<!/)/|[=<>~!]=)\Z", before) or re.search(rb"(?i)version[^A-Za-z]{0,3}\Z", before.encode()):
            continue
        found.append((m.start(), m.end(1)))
    ipv6 = re.compile(r"(?<![A-Za-z0-9_.\-:])(?=([23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]*))", re.ASCII)
    for m in ipv6.finditer(text):
        address = re.sub(r"(?<!:):\Z", "", m[1])
        if re.match(r"[A-Za-z0-9_]|\.\d", text[m.start() + len(address) :], re.ASCII):
            continue
        with suppress(ValueError):
            if is_public(address) and not re.match("[0-9A-Fa-f]*::", address):
                found.append((m.start(), m.start() + len(address)))
    return in_order(sorted(found))


def groups_at(text: str, begin: int) -> tuple[tuple[int, ...], str, int]:
    m = re.compile(r"\d+(?:([ ./-])\d+(?:\1\d+)*)?", re.ASCII).match(text, begin)
    assert m
    return tuple(len(group) for group in re.findall(r"\d+", m[0], re.ASCII)), m[1] or "", m.end()


def stands_alone(text: str, begin: int, end: int) -> bool:
    return bool(ALONE_BEFORE.match(text, begin) and ALONE_BEHIND.match(text, end))


def first_digits(text: str) -> list[int]:
    return [m.start() for m in re.finditer(r"(?<!\d)\d", text, re.ASCII)]


def only_digits(text: str) -> str:
    return re.sub(r"\D", "", text, flags=re.ASCII)


ISSUED = re.compile(
    r"4\d{12}|4\d{15}|4\d{18}|5[1-5]\d{14}|(?:222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:3[689]\d\d|30[0-5]\d)\d{10,15}|(?:6[245]\d\d|6011|352[89]|35[3-8]\d)\d{12,15}"
)


def cards(text: str) -> Spans:
    found = []
    for begin in first_digits(text):
        sizes, separator, end = groups_at(text, begin)
        if sizes[0] != 4:
            end = begin + sizes[0]
        elif separator not in (" ", "-") or sizes not in ((4, 4, 4, 4), (4, 4, 4, 4, 3), (4, 6, 5), (4, 6, 4)):
            continue
        digits = only_digits(text[begin:end])
        luhn = sum(sum(divmod(2 * int(d), 10)) if k % 2 else int(d) for k, d in enumerate(reversed(digits))) % 10 == 0
        if luhn and ISSUED.fullmatch(digits) and stands_alone(text, begin, end):
            found.append((begin, end))
    return in_order(found)


def ibans(text: str) -> Spans:
    found = []
    for m in re.finditer(r"(?<![A-Za-z0-9_])(?=([A-Z]{2})\d\d)", text, re.ASCII):
        length = IBAN_LENGTHS.get(m[1], 0)
        for end in (m.start() + length, m.start() + length + (length - 1) // 4):
            shown = text[m.start() : end]
            grouped = " ".join(shown.replace(" ", "")[k : k + 4] for k in range(0, length, 4))
            plain = shown.replace(" ", "")
            if len(plain) != length or not re.fullmatch(r"[A-Z0-9]+", plain) or shown not in (plain, grouped):
                continue
            if re.match(r"[A-Za-z0-9_]", text[end:]):
                continue
            if length and int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1:
                found.append((m.start(), end))
    return in_order(sorted(found))


def is_north_american(digits: str) -> bool:
    fiction = re.match(r"\d{3}55501", digits)
    return bool(re.fullmatch(r"(?![2-9]11)[2-9][0-8]\d(?!\d11)[2-9]\d\d\d{4}", digits)) and not fiction


def phone_end(text: str, i: int) -> int:
    """Position behind the number whose first digit is at i, or 0."""
    before = text[i - 1 : i] if i else ""
    if before == "+":
        m = re.compile(r"\d+(?:[ ./()-]{1,2}\d+)*", re.ASCII).match(text, i)
        assert m
        groups, digits = re.findall(r"\d+", m[0], re.ASCII), only_digits(m[0])
        if len(groups) > 6 or not 8 <= len(digits) <= 15 or digits[0] == "0":
            return 0
        if len(groups) == 2 and text[i + len(groups[0])] == ".":
            return 0
        if digits[0] in "17":
            good = len(digits) == 11 and (digits[0] == "7" or is_north_american(digits[1:]))
        else:
            good = int(digits[:2]) in COUNTRY_CODES or int(digits[:3]) in COUNTRY_CODES
        return m.end() if good else 0
    if m := re.compile(r"\d{3}\) ?(?=\d)", re.ASCII).match(text, i) if before == "(" else None:
        sizes, separator, end = groups_at(text, m.end())
        return end if (sizes, separator) == ((3, 4), "-") and is_north_american(only_digits(text[i:end])) else 0
    if before == "(":
        return 0
    if m := re.compile(r"1[ ./()-]\((?=\d{3}\) ?\d)", re.ASCII).match(text, i):
        inner = re.compile(r"\d{3}\) ?", re.ASCII).match(text, m.end())
        assert inner
        sizes, separator, end = groups_at(text, inner.end())
        return end if (sizes, separator) == ((3, 4), "-") and is_north_american(only_digits(text[m.end() : end])) else 0
    sizes, separator, end = groups_at(text, i)
    shown = text[i:end]
    shapes = {
        "north america": (sizes == (3, 3, 4) or (sizes == (1, 3, 3, 4) and shown[0] == "1"))
        and separator in ("-", ".")
        and shown[0] != "0"
        and is_north_american(only_digits(shown)[-10:]),
        "china": sizes == (3, 4, 4) and separator in (" ", "-") and re.match(r"1[3-9]", shown),
        "france": sizes == (2, 2, 2, 2, 2) and separator != "/",
        "japan, korea": separator == "-" and sizes in ((2, 3, 4), (2, 4, 4), (3, 3, 4), (3, 4, 4), (4, 3, 4)),
        "great britain": separator == " " and sizes in ((3, 4, 4), (4, 3, 4), (5, 6), (5, 3, 3)),
        "germany": separator in ("-", "/")
        and len(sizes) == 2
        and 3 <= sizes[0] <= 5
        and 5 <= sizes[1] <= 8
        and 10 <= sum(sizes) <= 12,
    }
    with_trunk = re.match(r"0[1-9]", shown)
    for name, fits in shapes.items():
        if fits and (name in ("north america", "china") or with_trunk):
            return end
    return 0


def phones(text: str) -> Spans:
    found: Spans = []
    for i in first_digits(text):
        end = phone_end(text, i)
        begin = i - 1 if i and text[i - 1] in "+(" else i
        if end and (not found or i >= found[-1][1]) and stands_alone(text, begin, end):
            found.append((begin, end))
    return found


ALPHABETS = {
    "UPPER_DIGIT": "[A-Z0-9]",
    "ALPHANUMERIC": "[A-Za-z0-9]",
    "URL_SAFE": "[A-Za-z0-9_-]",
    "HEX": "[0-9A-Fa-f]",
}


def secret_end(text: str, begin: int, number: int) -> int:
    from data.pii import byte_classes as pii_bytes

    marker = MARKERS[number]
    if marker.shape == JWT:
        m = re.compile(r"eyJ[\w-]{10,}\.eyJ[\w-]{7,}\.[\w-]{10,}", re.ASCII).match(text, begin)
        return m.end() if m else 0
    if marker.shape == PEM:
        key = r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?)-----((?:(?!-----(?:BEGIN|END) ).)*)-----END \1-----"
        m = re.compile(key, re.DOTALL).match(text, begin)
        return m.end() if m and re.search(r"[A-Za-z0-9+/=]{32}", m[2]) else 0
    letters = {
        pii_bytes.UPPER | pii_bytes.DIGIT: ALPHABETS["UPPER_DIGIT"],
        pii_bytes.ALPHANUMERIC: ALPHABETS["ALPHANUMERIC"],
        pii_bytes.URL_SAFE: ALPHABETS["URL_SAFE"],
        pii_bytes.HEX: ALPHABETS["HEX"],
    }[marker.alphabet]
    m = re.compile(f"{letters}*").match(text, begin + len(marker.prefix))
    assert m
    body = m[0]
    classes = sum(bool(re.search(pattern, body)) for pattern in ("[a-z]", "[A-Z]", "[0-9]"))
    good = (
        marker.least <= len(body) <= marker.most
        and not re.match(r"[A-Za-z0-9_]", text[m.end() :])
        and len(set(body)) >= 8
        and classes >= marker.num_classes
        and not (body.endswith("EXAMPLE") and len(body) > 7)
    )
    return m.end() if good else 0


def secrets(text: str) -> Spans:
    found: Spans = []
    for i in range(1, len(text)):
        floor = found[-1][1] if found else 0
        for number, marker in enumerate(MARKERS):
            begin = i - marker.mark
            if i < floor or begin < floor or not text.startswith(marker.prefix.decode(), begin):
                continue
            if begin and re.match(r"[A-Za-z0-9_-]", text[begin - 1]):
                continue
            if end := secret_end(text, begin, number):
                found.append((begin, end))
                break
    return found


FINDERS: dict[PiiKind, Callable[[str], Spans]] = {
    PiiKind.SECRET: secrets,
    PiiKind.EMAIL: emails,
    PiiKind.IBAN: ibans,
    PiiKind.CARD: cards,
    PiiKind.IP: ips,
    PiiKind.PHONE: phones,
}


def scrub(text: str, kinds: tuple[PiiKind, ...]) -> tuple[str, dict[PiiKind, int]]:
    """The text with everything replaced, and how often."""
    counts = dict.fromkeys(kinds, 0)
    while True:
        taken: list[tuple[int, int, PiiKind]] = []
        for kind in sorted(kinds, key=list(PiiKind).index):
            for begin, end in FINDERS[kind](text):
                if all(end <= other[0] or begin >= other[1] for other in taken):
                    taken.append((begin, end, kind))
        if not taken:
            return text, counts
        for begin, end, kind in sorted(taken, reverse=True):
            text = f"{text[:begin]}<{kind.name}>{text[end:]}"
            counts[kind] += 1
