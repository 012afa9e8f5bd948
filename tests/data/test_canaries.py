from itertools import islice

from data.canaries import SECRET_DIGITS, CanarySet, alternatives, canary, read_canaries


def test_a_canary_is_a_function_of_seed_and_number_alone() -> None:
    made = canary(3, 5)
    assert made == canary(3, 5) and made.text == f"{made.prefix}{made.secret}\n"
    assert len(made.secret) == SECRET_DIGITS and made.secret.isdecimal()
    secrets = {canary(seed, index).secret for seed in range(3) for index in range(50)}
    assert len(secrets) == 150, "another seed or number has another secret"


def test_alternatives_are_distinct_and_never_the_secret_and_a_larger_number_appends() -> None:
    made = alternatives(3, 5, 500)
    assert made[:60] == alternatives(3, 5, 60)
    assert len({*made, canary(3, 5).secret}) == 501
    assert all(len(secret) == SECRET_DIGITS and secret.isdecimal() for secret in made)
    assert not set(made) & set(alternatives(3, 6, 500)), "another canary has others"


def test_digits_of_secrets_and_alternatives_are_spread_alike() -> None:
    """As they must be for a secret that was never read to be like any alternative: each digit in a tenth of places."""
    for secrets in ([canary(1, index).secret for index in range(2000)], alternatives(1, 0, 2000)):
        digits = "".join(secrets)
        for digit in "0123456789":
            assert abs(digits.count(digit) / len(digits) - 0.1) < 5 * (0.1 * 0.9 / len(digits)) ** 0.5


def test_documents_of_a_set_hold_its_canaries_in_order() -> None:
    documents = list(read_canaries(CanarySet(seed=3, number=4)))
    assert [document.text for document in documents] == [canary(3, index).text for index in range(4)]
    assert {document.domain for document in documents} == {"canary"}
    assert len({document.id for document in documents}) == 4
    more = read_canaries(CanarySet(seed=3, number=9))
    assert list(islice(more, 4)) == documents
