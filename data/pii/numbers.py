"""Payment cards, bank accounts and telephone numbers in bytes of UTF-8 text. Each function is given the position of the
first digit of a run of digits.

| kind  | what is found                                                                                              |
|-------|------------------------------------------------------------------------------------------------------------|
| card  | 13 to 19 digits of a known issuer whose Luhn sum is right (ISO/IEC 7812), together or in groups as printed |
| iban  | an account of a country that has them, of its length and with the right remainder mod 97 (ISO 13616)       |
| phone | +, a country code, 8 to 15 digits in all (E.164); (212) 867-5309, 212-867-5309 and 212.867.5309 in North   |
|       | America; numbers of 10 to 12 digits that begin with the trunk prefix 0 and are grouped as in France, Great  |
|       | Britain, Germany, Japan or Korea; 138-1234-5678 in China                                                   |

A telephone number without + is found only in the groups in which it is usually printed: most digits in text are none.
North American numbers that are kept for fiction (555-01xx) are left alone.
"""

import numpy as np

from data.pii.byte_classes import CLASSES, DIGIT, UPPER, in_word, is_byte, is_in, number, run_end
from data.text.inner import inner

IBAN_LENGTHS = {
    **{"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29},
    **{"BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29},
    **{"ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28},
    **{"HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20, "LB": 28},
    **{"LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MN": 20},
    **{"MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29, "PT": 25},
    **{"QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24, "SM": 27},
    **{"SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20, "YE": 30},
}
COUNTRY_CODES = (
    *(1, 7, 20, 27, 30, 31, 32, 33, 34, 36, 39, 40, 41, 43, 44, 45, 46, 47, 48, 49, 51, 52, 53, 54, 55, 56, 57, 58, 60),
    *(61, 62, 63, 64, 65, 66, 81, 82, 84, 86, 90, 91, 92, 93, 94, 95, 98, 211, 212, 213, 216, 218, *range(220, 230)),
    *(*range(230, 270), 290, 291, 297, 298, 299, *range(350, 360), *range(370, 383), 385, 386, 387, 389, 420, 421, 423),
    *(*range(500, 510), *range(590, 600), *range(670, 693), 850, 852, 853, 855, 856, 880, 886, *range(960, 969)),
    *(*range(970, 978), 992, 993, 994, 995, 996, 998),
)
MOST_PHONE_DIGITS, LEAST_PHONE_DIGITS, MOST_PHONE_GROUPS = 15, 8, 6


def _iban_lengths() -> np.ndarray:
    """uint8[26 * 26]: the length of an account of the country, or 0."""
    table = np.zeros(26 * 26, np.uint8)
    for country, length in IBAN_LENGTHS.items():
        table[(ord(country[0]) - 65) * 26 + ord(country[1]) - 65] = length
    return table


def _country_codes() -> np.ndarray:
    """bool[1000]."""
    table = np.zeros(1000, bool)
    table[list(COUNTRY_CODES)] = True
    return table


_IBAN_LENGTHS = _iban_lengths()
_COUNTRY_CODES = _country_codes()


@inner
def _stands_alone(values: np.ndarray, first: int, stop: int, begin: int, end: int) -> bool:
    """Whether values[first:stop] is no part of a longer number, name or path."""
    if first > begin:
        c = values[first - 1]
        if in_word(values, first - 1, begin, end) or c == 46 or c == 45 or c == 43 or c == 47 or c == 35 or c == 36:
            return False
    if stop < end:
        c = values[stop]
        if in_word(values, stop, begin, end):
            return False
        if (c == 46 or c == 45 or c == 47 or c == 58) and in_word(values, stop + 1, begin, end):
            return False
    return True


@inner
def _groups(values: np.ndarray, i: int, end: int) -> tuple[int, int, int]:
    """(position behind the groups of digits from i on, their sizes as hexadecimal digits, the byte between them): the
    sizes of 4111 1111 1111 1111 are 0x4444. More than 15 digits in a group or more than 6 groups make them 0."""
    sizes = separator = num_groups = 0
    while True:
        stop = run_end(values, i, end, DIGIT, 16)
        num_groups += 1
        if stop - i > 15 or num_groups > 6:
            return stop, 0, separator
        sizes = sizes << 4 | (stop - i)
        if stop + 1 >= end or CLASSES[values[stop + 1]] & DIGIT == 0:
            return stop, sizes, separator
        c = values[stop]
        if separator == 0 and (c == 32 or c == 46 or c == 45 or c == 47):
            separator = c
        elif c != separator:
            return stop, sizes, separator
        i = stop + 1


@inner
def _digits(values: np.ndarray, i: int, end: int) -> int:
    """All digits of values[i:end] as one number, whatever stands between them."""
    found = 0
    for k in range(i, end):
        if CLASSES[values[k]] & DIGIT:
            found = 10 * found + (values[k] - 48)
    return found


@inner
def card_at(values: np.ndarray, i: int, begin: int, end: int) -> tuple[int, int]:
    """(begin, end) of the card number whose first digit is at i; (0, 0) if there is none."""
    stop = run_end(values, i, end, DIGIT, 20)
    n = stop - i
    if n == 4:
        stop, sizes, separator = _groups(values, i, end)
        if separator != 32 and separator != 45:
            return 0, 0
        n = 16 if sizes == 0x4444 else 15 if sizes == 0x465 else 14 if sizes == 0x464 else 19 if sizes == 0x44443 else 0
    if n < 13 or n > 19 or not _stands_alone(values, i, stop, begin, end):
        return 0, 0
    total = k = 0
    for j in range(stop - 1, i - 1, -1):
        if CLASSES[values[j]] & DIGIT == 0:
            continue
        d = values[j] - 48
        if k & 1:
            d = 2 * d - 9 if d > 4 else 2 * d
        total += d
        k += 1
    return (i, stop) if total % 10 == 0 and _is_issued(number(values, i, i + 4), n) else (0, 0)


@inner
def _is_issued(four: int, n: int) -> bool:
    """Whether numbers of a known issuer begin with these four digits and have n."""
    two = four // 100
    if two // 10 == 4:
        return n == 13 or n == 16 or n == 19
    if 51 <= two <= 55 or 2221 <= four <= 2720:
        return n == 16
    if two == 34 or two == 37:
        return n == 15
    if two == 36 or two == 38 or two == 39 or 3000 <= four <= 3059:
        return n >= 14
    return n >= 16 and (two == 65 or two == 62 or two == 64 or four == 6011 or 3528 <= four <= 3589)


@inner
def iban_at(values: np.ndarray, i: int, begin: int, end: int) -> tuple[int, int]:
    """(begin, end) of the account whose two check digits are at i; (0, 0) if there is none."""
    first = i - 2
    if first < begin or CLASSES[values[first]] & UPPER == 0 or CLASSES[values[first + 1]] & UPPER == 0:
        return 0, 0
    length = _IBAN_LENGTHS[(values[first] - 65) * 26 + values[first + 1] - 65]
    if length == 0 or in_word(values, first - 1, begin, end) or not is_in(values, i + 1, begin, end, DIGIT):
        return 0, 0
    grouped = is_byte(values, first + 4, begin, end, 32)
    k = first
    remainder = head = 0
    for j in range(length):
        if grouped and j > 0 and j % 4 == 0:
            if not is_byte(values, k, begin, end, 32):
                return 0, 0
            k += 1
        if not is_in(values, k, begin, end, DIGIT | UPPER):
            return 0, 0
        d = values[k] - 48 if values[k] < 58 else values[k] - 55
        scale = 10 if d < 10 else 100
        if j < 4:
            head = head * scale + d
        else:
            remainder = (remainder * scale + d) % 97
        k += 1
    if in_word(values, k, begin, end) or (remainder * 1_000_000 + head) % 97 != 1:
        return 0, 0
    return first, k


@inner
def phone_at(values: np.ndarray, i: int, begin: int, end: int) -> tuple[int, int]:
    """(begin, end) of the telephone number whose first digit is at i; (0, 0) if there is none."""
    first, stop = i, 0
    if is_byte(values, i - 1, begin, end, 43):
        first, stop = i - 1, _international_end(values, i, end)
    elif is_byte(values, i - 1, begin, end, 40):
        first, stop = i - 1, _bracketed_end(values, i, end)
    elif values[i] == 49 and is_byte(values, i + 2, begin, end, 40) and _is_separator(values[i + 1]):
        stop = _bracketed_end(values, i + 3, end)
    else:
        stop = _national_end(values, i, end)
    return (first, stop) if stop and _stands_alone(values, first, stop, begin, end) else (0, 0)


@inner
def _is_separator(c: int) -> bool:
    return c == 32 or c == 46 or c == 45 or c == 47 or c == 40 or c == 41


@inner
def _international_end(values: np.ndarray, i: int, end: int) -> int:
    """Position behind a number whose country code begins at i, or 0. Between digits there may be one or two of space,
    period, hyphen, slash and brackets."""
    k = stop = i
    num_digits = num_groups = 0
    while num_groups <= MOST_PHONE_GROUPS:
        stop = run_end(values, k, end, DIGIT, MOST_PHONE_DIGITS + 1)
        num_digits += stop - k
        num_groups += 1
        k = stop
        while k < end and k - stop < 2 and _is_separator(values[k]):
            k += 1
        if k in (stop, end) or CLASSES[values[k]] & DIGIT == 0:
            break
    if not LEAST_PHONE_DIGITS <= num_digits <= MOST_PHONE_DIGITS or num_groups > MOST_PHONE_GROUPS or values[i] == 48:
        return 0
    point = run_end(values, i, end, DIGIT, MOST_PHONE_DIGITS)
    if num_groups == 2 and point < end and values[point] == 46:
        return 0  # a decimal fraction
    digits = _digits(values, i, stop)
    if values[i] == 49 or values[i] == 55:
        return stop if num_digits == 11 and (values[i] == 55 or _is_north_american(digits - 10**10)) else 0
    for _ in range(num_digits - 3):
        digits //= 10
    return stop if _COUNTRY_CODES[digits] or _COUNTRY_CODES[digits // 10] else 0


@inner
def _is_north_american(digits: int) -> bool:
    """Whether ten digits are an area code, an exchange and a line as they are given out (NANP), and not for fiction."""
    area, exchange = digits // 10**7, digits // 10**4 % 1000
    if area < 200 or area // 10 % 10 == 9 or area % 100 == 11 or exchange < 200 or exchange % 100 == 11:
        return False
    return not (exchange == 555 and digits % 10**4 // 100 == 1)


@inner
def _bracketed_end(values: np.ndarray, i: int, end: int) -> int:
    """Position behind 212) 867-5309 or 212)867-5309, or 0."""
    if run_end(values, i, end, DIGIT, 4) != i + 3 or not is_byte(values, i + 3, 0, end, 41):
        return 0
    k = i + 4 + is_byte(values, i + 4, 0, end, 32)
    if k >= end or CLASSES[values[k]] & DIGIT == 0:
        return 0
    stop, sizes, separator = _groups(values, k, end)
    return stop if sizes == 0x34 and separator == 45 and _is_north_american(_digits(values, i, stop)) else 0


@inner
def _national_end(values: np.ndarray, i: int, end: int) -> int:
    """Position behind a number without + and brackets, or 0."""
    stop, sizes, separator = _groups(values, i, end)
    if separator == 0 or sizes == 0:
        return 0
    second = values[i + 1]
    if values[i] != 48:
        if (sizes == 0x334 or (sizes == 0x1334 and values[i] == 49)) and (separator == 45 or separator == 46):
            return stop if _is_north_american(_digits(values, i, stop) % 10**10) else 0
        is_chinese = sizes == 0x344 and values[i] == 49 and second >= 51 and (separator == 32 or separator == 45)
        return stop if is_chinese else 0
    if second < 49 or second > 57:
        return 0
    if sizes == 0x22222:  # France: 01 23 45 67 89
        return stop if separator != 47 else 0
    if separator == 45 and (sizes == 0x234 or sizes == 0x244 or sizes == 0x334 or sizes == 0x344 or sizes == 0x434):
        return stop  # Japan and Korea: 03-1234-5678
    first, rest = sizes >> 4, sizes & 15
    if separator == 32:  # Great Britain: 020 7946 0958, 0161 496 0958, 07911 123456
        return stop if sizes == 0x344 or sizes == 0x434 or sizes == 0x56 or sizes == 0x533 else 0
    is_german = 3 <= first <= 5 and 5 <= rest <= 8 and 10 <= first + rest <= 12
    return stop if is_german and (separator == 45 or separator == 47) else 0  # 030/1234567, 0170-1234567
