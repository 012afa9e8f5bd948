"""E-mail and public IP addresses in bytes of UTF-8 text.

What stands in documentation and in code and is nobody's is left alone: the domains example.com, .net, .org and .edu
(RFC 2606), `git@host`, the user of a URL (`//user@host`, `//user:password@host`), `a @ b.T` and its like (the last
label must be a top-level domain and no call), addresses that are not routed in the Internet or reserved for
documentation (RFC 5737, RFC 3849, RFC 6890), and version numbers of four parts.
"""

from typing import Any

import numpy as np

from data.pii.byte_classes import (
    ALPHANUMERIC,
    CLASSES,
    DIGIT,
    HEX,
    LABEL,
    LETTER,
    LOCAL,
    in_word,
    is_byte,
    is_in,
    number,
    run_end,
)
from data.text.inner import inner

MOST_LOCAL_BYTES = 64
MOST_LABEL_BYTES = 63
MOST_DOMAIN_BYTES = 253
LEAST_IP_DIGITS = 7  # in the four parts together: fewer are versions and sections; 1 of 700 addresses has fewer

COUNTRY_DOMAINS = """
ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc cd cf cg
ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gd ge gf gg gh gi
gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw
ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne nf ng
ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb sc sd se sg sh si sk sl sm sn
so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws
ye yt za zm zw
"""
GENERIC_DOMAINS = """
academy aero agency app art arpa asia associates bank berlin best bike biz blog business cafe capital care cat center
church city clinic cloud club co com community company computer consulting coop deals design dev digital direct
education edu email energy engineering events expert family farm finance fitness foundation fun fund gallery global
gmbh gov group guide guru health help hospital host hotel house inc info ink institute int international jobs kim
kitchen land law legal life link live llc london ltd management marketing media men mil mobi money moscow museum name
net network news ngo nyc one ong online org page paris partners party photo photography photos plus post press pro
productions properties pub recipes report review rocks run sale school science security services shop show site social
software solar solutions space sport store studio support swiss systems tax team tech technology tel tips today tokyo
tools top tours town toys training travel university vet video vip vision watch web website wiki wine work works world
xyz zone
"""


@inner
def label_hash(values: np.ndarray, begin: int, end: int) -> np.uint64:
    """FNV-1a of a label, with ASCII letters in lower case."""
    h = np.uint64(0xCBF29CE484222325)
    for k in range(begin, end):
        c = values[k] | np.uint8(32) if 65 <= values[k] <= 90 else values[k]
        h = (h ^ np.uint64(c)) * np.uint64(0x100000001B3)
    return h


def _label_hashes(labels: list[str]) -> np.ndarray:
    """uint64, sorted."""
    h = []
    for label in labels:
        state = 0xCBF29CE484222325
        for c in label.encode():
            state = (state ^ c) * 0x100000001B3 % 2**64
        h.append(state)
    return np.unique(np.array(h, np.uint64))


_TOP_LEVEL = _label_hashes(f"{COUNTRY_DOMAINS} {GENERIC_DOMAINS}".split())
_OF_EXAMPLES = _label_hashes(["com", "net", "org", "edu"])
_EXAMPLE = _label_hashes(["example"])
_VERSION = np.frombuffer(b"version", np.uint8)
_int64: Any = np.int64


@inner
def _among(values: np.ndarray, begin: int, end: int, hashes: np.ndarray) -> bool:
    h = label_hash(values, begin, end)
    place = np.searchsorted(hashes, h)
    return bool(place < len(hashes) and hashes[place] == h)


@inner
def email_at(values: np.ndarray, i: int, begin: int, end: int, floor: int) -> tuple[int, int]:
    """(begin, end) of the e-mail address around the @ at i, from `floor` on; (0, 0) if there is none."""
    first = i
    while first > floor and i - first <= MOST_LOCAL_BYTES and CLASSES[values[first - 1]] & LOCAL != 0:
        first -= 1
    if i - first > MOST_LOCAL_BYTES or _is_url_user(values, first, begin, end):
        return 0, 0
    while first < i and CLASSES[values[first]] & ALPHANUMERIC == 0:
        first += 1
    if first == i or values[i - 1] == 46:
        return 0, 0
    for k in range(first, i - 1):
        if values[k] == 46 and values[k + 1] == 46:
            return 0, 0
    if i - first == 3 and values[first] == 103 and values[first + 1] == 105 and values[first + 2] == 116:
        return 0, 0
    stop = _domain_end(values, i + 1, end)
    return (first, stop) if stop else (0, 0)


@inner
def _is_url_user(values: np.ndarray, first: int, begin: int, end: int) -> bool:
    """Whether what begins at `first` follows / or //user: directly."""
    if is_byte(values, first - 1, begin, end, 47):
        return True
    if not is_byte(values, first - 1, begin, end, 58):
        return False
    k = first - 2
    while k >= begin and first - k <= MOST_LOCAL_BYTES and CLASSES[values[k]] & LOCAL != 0:
        k -= 1
    return is_byte(values, k, begin, end, 47) and is_byte(values, k - 1, begin, end, 47)


@inner
def _domain_end(values: np.ndarray, i: int, end: int) -> int:
    """Position behind the longest domain name from i on whose last label is a top-level domain; 0 if there is none or
    if it is one of the examples."""
    found = 0
    limit = min(end, i + MOST_DOMAIN_BYTES)
    before_begin = before_end = _int64(0)  # the label before this one
    while True:
        stop = run_end(values, i, limit, LABEL, MOST_LABEL_BYTES)
        if stop == i or values[i] == 45 or values[stop - 1] == 45 or is_in(values, stop, 0, end, LABEL):
            break
        followed = stop < end and (values[stop] == 95 or values[stop] == 40)
        if before_end and not followed and _is_top_level(values, i, stop):
            if _among(values, i, stop, _OF_EXAMPLES) and _among(values, before_begin, before_end, _EXAMPLE):
                return 0
            found = stop
        if not is_byte(values, stop, 0, limit, 46):
            break
        before_begin, before_end, i = i, stop, stop + 1
    return found


@inner
def _is_top_level(values: np.ndarray, begin: int, end: int) -> bool:
    if end - begin > 4 and values[begin] | 32 == 120 and values[begin + 1] | 32 == 110 and values[begin + 2] == 45:
        return values[begin + 3] == 45  # a name in another script: xn--
    return _among(values, begin, end, _TOP_LEVEL)


@inner
def ipv4_at(values: np.ndarray, i: int, begin: int, end: int) -> tuple[int, int]:
    """(begin, end) of the public IPv4 address whose first digit is at i; (0, 0) if there is none."""
    k = i
    num_digits = 0
    address = _int64(0)
    for part in range(4):
        stop = run_end(values, k, end, DIGIT, 4)
        length = stop - k
        if length == 0 or length > 3 or (length > 1 and values[k] == 48):
            return 0, 0
        octet = number(values, k, stop)
        if octet > 255 or (part < 3 and not is_byte(values, stop, begin, end, 46)):
            return 0, 0
        address = address << 8 | octet
        num_digits += length
        k = stop + 1
    stop = k - 1
    if num_digits < LEAST_IP_DIGITS or not _is_public_ipv4(address):
        return 0, 0
    if in_word(values, stop, begin, end) or (
        stop < end and (values[stop] == 46 or values[stop] == 45) and in_word(values, stop + 1, begin, end)
    ):
        return 0, 0
    return (0, 0) if _is_version(values, i, begin, end) else (i, stop)


@inner
def _is_version(values: np.ndarray, i: int, begin: int, end: int) -> bool:
    """Whether a number at i is part of a name, a path or a version requirement, or follows the word "version"."""
    if i == begin:
        return False
    c = values[i - 1]
    if in_word(values, i - 1, begin, end) or c == 46 or c == 45:
        return True
    if c == 47:
        return not is_byte(values, i - 2, begin, end, 47)
    if c == 61 and i - 2 >= begin:
        d = values[i - 2]
        if d == 61 or d == 60 or d == 62 or d == 126 or d == 33:
            return True
    k = i - 1
    while k >= begin and i - k <= 3 and CLASSES[values[k]] & LETTER == 0:
        k -= 1
    if k - 6 < begin:
        return False
    for j in range(7):  # noqa: SIM110 (numba has no all())
        if values[k - 6 + j] | 32 != _VERSION[j]:
            return False
    return True


@inner
def _is_public_ipv4(address: int) -> bool:
    """Whether an address is one of the Internet's: none of IANA's special-purpose blocks, and no multicast."""
    a, b, c = address >> 24, address >> 16 & 255, address >> 8 & 255
    if a == 0 or a == 10 or a == 127 or a >= 224:
        return False
    if a == 100:
        return b & 0xC0 != 64
    if a == 169:
        return b != 254
    if a == 172:
        return b & 0xF0 != 16
    if a == 192:
        return not (b == 168 or (b == 0 and (c == 0 or c == 2)))
    if a == 198:
        return not (b & 0xFE == 18 or (b == 51 and c == 100))
    return not (a == 203 and b == 0 and c == 113)


@inner
def ipv6_at(values: np.ndarray, i: int, begin: int, end: int) -> tuple[int, int]:
    """(begin, end) of the global unicast IPv6 address (2000::/3) whose first digit is at i; (0, 0) if there is none.

    At least two groups must stand before a `::`, as in every block that a network is given.
    """
    if i > begin:
        c = values[i - 1]
        if in_word(values, i - 1, begin, end) or c == 46 or c == 45 or c == 58:
            return 0, 0
    k = i
    num_groups = 0
    compressed = False
    first = second = _int64(0)
    while True:
        stop = run_end(values, k, end, HEX, 5)
        length = stop - k
        if length > 4 or (num_groups == 0 and length != 4):
            return 0, 0
        group = 0
        for j in range(k, stop):
            c = values[j]
            group = group << 4 | (c - 48 if c < 58 else (c | 32) - 87)
        if num_groups == 0:
            first = group
        elif num_groups == 1:
            second = group
        num_groups += 1
        k = stop
        if not is_byte(values, k, begin, end, 58) or num_groups > 8:
            break
        if is_in(values, k + 1, begin, end, HEX):
            k += 1
        elif is_byte(values, k + 1, begin, end, 58) and not compressed and num_groups >= 2:
            compressed = True
            k += 2
            if not is_in(values, k, begin, end, HEX):
                break
        else:
            break
    whole = num_groups <= 7 if compressed else num_groups == 8
    if not whole or in_word(values, k, begin, end):
        return 0, 0
    if is_byte(values, k, begin, end, 46) and is_in(values, k + 1, begin, end, DIGIT):
        return 0, 0  # the tail of an IPv4 address
    if is_byte(values, k, begin, end, 58):
        goes_on = is_in(values, k + 1, begin, end, HEX) or is_byte(values, k + 1, begin, end, 58)
        if goes_on or values[k - 1] == 58:
            return 0, 0
    return (i, k) if _is_public_ipv6(first, second) else (0, 0)


@inner
def _is_public_ipv6(first: int, second: int) -> bool:
    if first == 0x2001:
        return second >= 0x200 and second != 0xDB8
    return first >> 13 == 1 and first != 0x2002 and not (first == 0x3FFF and second < 0x1000)
