import pytest

from data.errors import InputError
from stages.pretrain.faults import ALLOWED, load_hook, no_fault
from tests.stages.pretrain import faults


def test_only_a_test_may_name_a_fault_injector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALLOWED, raising=False)
    assert load_hook("") is no_fault
    with pytest.raises(InputError, match="only tests may"):
        load_hook(faults.HOOK)
    monkeypatch.setenv(ALLOWED, "1")
    assert load_hook(faults.HOOK) is faults.inject
