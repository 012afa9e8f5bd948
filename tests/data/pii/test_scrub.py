"""Personal data: what is found and what is left alone, and the kernels against plain regular expressions."""

import random
import string

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.pii.kinds import DEFAULT_KINDS, PiiKind
from data.pii.numbers import IBAN_LENGTHS
from data.pii.scrub import ORDER, scrub
from data.pii.secrets import MARKERS
from tests.data.pii import pii_reference

EMAIL, IP, PHONE, CARD, IBAN, SECRET = (
    *(PiiKind.EMAIL, PiiKind.IP, PiiKind.PHONE),
    *(PiiKind.CARD, PiiKind.IBAN, PiiKind.SECRET),
)
KEY = "MIIEowIBAAKCAQEAy8Dbv8prpJ/0kKhlGeJYozo2t60EG8EY"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"


def column(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def scrubbed(text: str, *kinds: PiiKind) -> str:
    return scrub(column(text), kinds or ORDER).texts[0].as_py()


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("Write to bob.smith+x@mail.company.co.uk.", "Write to <EMAIL>."),
        ("<mailto:o'neil@firm.de>, UPPER@FIRM.COM", "<mailto:<EMAIL>>, <EMAIL>"),
        ("邮箱ma@firma.cn请写", "邮箱<EMAIL>请写"),
        ("an@xn--80ak6aa92e.xn--p1ai and a@b.com.The next", "<EMAIL> and <EMAIL>.The next"),
        ("from 54.23.100.7:80, http://54.23.100.7/x", "from <IP>:80, http://<IP>/x"),
        ("[2606:4700:4700::1111]:53 or 2a00:1450:4001:81b:0:0:0:200e", "[<IP>]:53 or <IP>"),
        ("Tel. +49 (0)170 1234567 or +14155550134x", "Tel. <PHONE> or +14155550134x"),
        ("(212) 867-5309, 1-212-867-5309, 1 (212) 867-5309, 212.867.5309", "<PHONE>, <PHONE>, <PHONE>, <PHONE>"),
        ("01 23 45 67 89; 020 7946 0958; 07911 123456", "<PHONE>; <PHONE>; <PHONE>"),
        ("030/12345678, 03-1234-5678, 010-1234-5678, 138-1234-5678", "<PHONE>, <PHONE>, <PHONE>, <PHONE>"),
        ("4111 1111 1111 1111, 5500000000000004 and 3782 822463 10005", "<CARD>, <CARD> and <CARD>"),
        ("DE89 3704 0044 0532 0130 00 / GB82WEST12345698765432", "<IBAN> / <IBAN>"),
        ("key=AKIAIOSFODNN7ABCDEFG;", "key=<SECRET>;"),
        (f"ghp_{KEY[:4]}0123456789abcdefghijABCDEFGHIJ01 Bearer {JWT}", "<SECRET> Bearer <SECRET>"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n-----END RSA PRIVATE KEY-----\n", "<SECRET>\n"),
    ],
)
def test_what_is_found(text: str, result: str) -> None:
    assert scrubbed(text) == result


@pytest.mark.parametrize(
    "text",
    [
        "me@example.com, you@mail.example.org: kept for examples",
        "git@github.com:owner/name.git, https://user:word@host.com/, https://user@host.com/, npm/@scope/x@1.2.3",
        "x = a@b.T + a@b.to(device) + q@k.transpose, @property, a..b@mail.com, a.@mail.com",
        "10.0.0.1 127.0.0.1 192.168.1.1 172.16.5.4 100.64.1.1 203.0.113.77 198.51.100.23 224.100.100.1 255.255.255.255",
        "version 54.23.100.7, v54.23.100.7, pip>=54.23.100.7, ==54.23.100.7, lib-54.23.100.7, files/54.23.100.7/a",
        "1.2.3.4 and 10.1.12.3.4 and 256.100.100.100 and 54.23.100.07 and 54.23.100.7.8",
        "2001:db8::1 fe80::1 ::1 2002:c000:204::1 2023:10:11:12 12:30:59 std::vector 3fff:fff::1 2606::1",
        "2023-10-11 12:30, +1.23456789, +100000000000, 555-0100, 212-555-0123, 1234567890, 911-234-5678",
        "4111111111111112 and 1234567812345670 and 0.4111111111111111 and a4111111111111111",
        "GB82WEST12345698765433, DE89 3704 0044 0532 0130 0, XX12 3456 7890",
        "AKIAIOSFODNN7EXAMPLE, ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx1A, sk-toggleable__content-arrow-button-box",
        "-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN CERTIFICATE-----\n{KEY}\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_left_alone(text: str) -> None:
    assert scrubbed(text) == text


def test_a_text_without_a_match_keeps_its_bytes_and_a_column_without_one_its_buffers() -> None:
    texts = column("nothing here", "a@mail.com", "", "\u4e2d\u6587 9")
    assert scrub(texts[:1], ORDER).texts.buffers()[2].address == texts.buffers()[2].address
    found = scrub(texts, ORDER)
    assert found.texts.to_pylist() == ["nothing here", "<EMAIL>", "", "\u4e2d\u6587 9"]
    assert found.counts[EMAIL].tolist() == [0, 1, 0, 0] and not found.counts[IP].any()
    assert scrub(texts, ()).texts is texts and scrub(texts, ()).counts == {}
    assert scrub(column(), ORDER).texts.to_pylist() == []


def test_a_slice_of_a_column_and_one_in_foreign_memory_are_scrubbed_alike() -> None:
    texts = column("x@mail.com", "a@mail.com b", "ip 54.23.100.7", "c")
    foreign = pa.LargeStringArray.from_buffers(4, *(pa.py_buffer(bytes(buffer)) for buffer in texts.buffers()[1:]))
    for some in (texts, foreign):
        found = scrub(some[1:3], (EMAIL, IP))
        assert found.texts.to_pylist() == ["<EMAIL> b", "ip <IP>"]
        assert found.counts[EMAIL].tolist() == [1, 0] and found.counts[IP].tolist() == [0, 1]


def test_the_stronger_kind_wins_where_two_overlap() -> None:
    assert scrubbed("54.23.100.7@mail.com") == "<EMAIL>"
    assert scrubbed("54.23.100.7@mail.com", IP) == "54.23.100.7@mail.com".replace("54.23.100.7", "<IP>")
    assert scrubbed("+49 170 1234567 54.23.100.7") == "<PHONE> <IP>", "what the first round leaves is looked at again"


def test_the_defaults_leave_addresses_of_machines_and_telephones() -> None:
    text = "call +49 170 1234567 from 54.23.100.7 or write to a@mail.com"
    assert scrubbed(text, *DEFAULT_KINDS) == text.replace("a@mail.com", "<EMAIL>")


LETTERS = string.ascii_letters + string.digits


class Writer:
    """Text that is full of what nearly is personal data, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def some(self, alphabet: str, count: int) -> str:
        return "".join(self.rng.choices(alphabet, k=count))

    def text(self) -> str:
        pieces = [self.email, self.ipv4, self.ipv6, self.card, self.iban, self.phone, self.secret, self.other]
        text = "".join(
            self.rng.choice(pieces)() + self.rng.choice([" ", "", " ", "\n", ", ", ".", "-"])
            for _ in range(self.rng.randrange(1, 8))
        )
        for _ in range(self.rng.randrange(3)):
            place = self.rng.randrange(len(text) + 1)
            kept = place + self.rng.randrange(2)
            text = text[:place] + self.rng.choice(["", "", *" .-@/:0aZ_"]) + text[kept:]
        return text

    def email(self) -> str:
        local = self.rng.choice(["bob", "a.b", "x+y", "git", "x..y", "-a", "'b", ".", "a" * 64, "a" * 65])
        hosts = ["mail.com", "a.b.co.uk", "example.com", "x.T", "xn--a.xn--p1ai", "host", "a-.com", "a.to(", "c.io_"]
        return f"{local}@{self.rng.choice([*hosts, 'www.example.org', 'm.com.', 'q.de-x', 'b' * 63 + '.de'])}"

    def ipv4(self) -> str:
        octets = [0, 1, 8, 10, 54, 100, 127, 169, 172, 192, 198, 203, 255, 256, self.rng.randrange(256)]
        return ".".join(str(self.rng.choice(octets)) for _ in range(self.rng.choice([4, 4, 4, 3, 5])))

    def ipv6(self) -> str:
        groups = ["", "2001", "2606", "4700", "db8", "0", "1", "ffff", "3fff", "2002", "fff0f"]
        return ":".join(self.rng.choices(groups, k=self.rng.randrange(2, 10)))

    def card(self) -> str:
        digits = self.rng.choice(["4", "51", "2221", "34", "37", "36", "6011", "62", "3530", "300", "9"])
        digits += self.some(string.digits, self.rng.randrange(10, 17))
        separator = self.rng.choice(" -.")
        groups = self.rng.choice([(4, 8, 12, 16), (4, 10), ()])
        return separator.join(digits[a:b] for a, b in zip((0, *groups), (*groups, 99), strict=True)).rstrip(separator)

    def iban(self) -> str:
        country = self.rng.choice(list(IBAN_LENGTHS))
        body = self.some("ABC" + string.digits, IBAN_LENGTHS[country] - 4)
        check = 98 - int("".join(str(int(c, 36)) for c in f"{body}{country}00")) % 97
        shown = f"{country}{check:02d}{body}"
        return shown if self.rng.random() < 0.5 else " ".join(shown[k : k + 4] for k in range(0, len(shown), 4))

    def phone(self) -> str:
        whole = ["(212) 867-5309", "(212)867-5309", "1-212-867-5309", "1 (212) 867-5309", "212-555-0123"]
        separator = self.rng.choice(" -./")
        groups = [self.some(string.digits, self.rng.randrange(1, 7)) for _ in range(self.rng.randrange(1, 6))]
        begin = self.rng.choice(["+49", "+1", "+44 ", "+7-", "+999", "+20 (", "0", "01", "1", "(", "2"])
        return self.rng.choice([*whole, begin + separator.join(groups), begin + separator.join(groups)])

    def secret(self) -> str:
        marker = self.rng.choice(MARKERS)
        count = self.rng.choice([marker.least, marker.least + 1, marker.most, max(0, marker.least - 1)])
        parts = [self.some(LETTERS, self.rng.choice([6, 7, 9, 10, 20])) for _ in range(3)]
        label = self.rng.choice(["RSA PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK", "CERTIFICATE"])
        return self.rng.choice(
            [
                marker.prefix.decode() + self.some(LETTERS, min(count, 99)),
                f"eyJ{parts[0]}.eyJ{parts[1]}.{parts[2]}",
                f"-----BEGIN {label}-----\n{self.some(LETTERS, self.rng.choice([31, 32]))}\n-----END {label}-----",
            ]
        )

    def other(self) -> str:
        words = ["version ", "https://", "//", "mailto:", "\u00e9", "\u4e2d", "-----", "==", "v", "user:", "+", "("]
        return self.rng.choice([*words, *" .-/:@_#()'\n,aZ0", self.some(string.digits, self.rng.randrange(1, 21))])


@given(st.integers(0, 2**32), st.sampled_from([ORDER, *((kind,) for kind in PiiKind)]))
@settings(max_examples=300, deadline=None)
def test_the_kernels_find_what_plain_regular_expressions_find(seed: int, kinds: tuple[PiiKind, ...]) -> None:
    texts = [Writer(seed + i).text() for i in range(4)]
    found = scrub(column(*texts), kinds)
    plain = [pii_reference.scrub(text, kinds) for text in texts]
    assert found.texts.to_pylist() == [text for text, _ in plain]
    for kind in kinds:
        assert found.counts[kind].tolist() == [counts[kind] for _, counts in plain]
    assert scrub(found.texts, kinds).texts is found.texts


@given(st.lists(st.text(), max_size=5))
@settings(max_examples=100, deadline=None)
def test_any_text_stays_text(texts: list[str]) -> None:
    found = scrub(column(*texts), ORDER)
    found.texts.validate(full=True)
    for before, after in zip(texts, found.texts.to_pylist(), strict=True):
        assert before == after or "@" in before or any(c.isdigit() for c in before)


@pytest.mark.parametrize(
    "text",
    [
        *(
            piece * 20_000
            for piece in ("eyJ-", "a@", "1.", "2001:", "+1 ", "-----BEGIN PRIVATE KEY-----", "sk-", "4111 ")
        ),
        "9" * 100_000,
        "a" * 100_000 + "@" + "b." * 50_000,
    ],
)
def test_long_runs_of_what_begins_a_match_take_no_more_time_than_they_are_long(text: str) -> None:
    """A quadratic scan of these would not end within the patience of whoever runs the tests."""
    assert scrubbed(text)


def test_most_of_many_matches_in_one_text_are_counted() -> None:
    count = 5000
    found = scrub(column(" ".join(f"user{i}@mail{i}.com" for i in range(count))), (EMAIL,))
    assert int(np.sum(found.counts[EMAIL])) == count and found.texts[0].as_py() == " ".join(["<EMAIL>"] * count)


def test_keys_side_by_side_are_found_in_one_round(monkeypatch):
    from data.pii import scrub as scrubber

    key = f"-----BEGIN PRIVATE KEY-----\n{'aB3' * 12}-----END PRIVATE KEY-----"
    monkeypatch.setattr(scrubber, "MOST_ROUNDS", 1)
    found = scrubber.scrub(pa.array([key * 50], pa.large_string()), (PiiKind.SECRET,))
    assert found.texts.to_pylist() == ["<SECRET>" * 50]


def test_a_text_that_lays_one_match_bare_after_another_ends():
    from data.pii import scrub as scrubber

    key = f"-----BEGIN PRIVATE KEY-----\n{'aB3' * 12}-----END PRIVATE KEY-----"
    found = scrubber.scrub(pa.array([(key + "4111111111111111") * 500], pa.large_string()), tuple(PiiKind))
    replaced = int(sum(counts.sum() for counts in found.counts.values()))
    assert scrubber.MOST_ROUNDS <= replaced < 1000
