from stages.pretrain.optimise.loss_scale import FIRST, GREATEST, GROWTH_STEPS, LEAST, LossScale


def test_an_overflow_halves_it_and_many_clean_steps_double_it() -> None:
    scale = LossScale()
    assert scale == LossScale(scale=FIRST, clean_steps=0)
    scale = scale.after(overflow=True)
    assert scale == LossScale(scale=FIRST / 2, clean_steps=0)
    for step in range(1, GROWTH_STEPS):
        scale = scale.after(overflow=False)
        assert scale == LossScale(scale=FIRST / 2, clean_steps=step)
    assert scale.after(overflow=True) == LossScale(scale=FIRST / 4, clean_steps=0)
    assert scale.after(overflow=False) == LossScale(scale=FIRST, clean_steps=0)


def test_it_grows_no_further_than_the_greatest_and_sinks_below_the_least() -> None:
    scale = LossScale(scale=GREATEST, clean_steps=GROWTH_STEPS - 1)
    assert scale.after(overflow=False).scale == GREATEST
    assert scale.after(overflow=True).scale == GREATEST / 2
    assert LossScale(scale=LEAST).after(overflow=True).scale < LEAST


def test_every_scale_is_a_power_of_two_and_survives_json() -> None:
    """So that to scale and to unscale loses no bit, and a checkpoint neither."""
    scale = LossScale()
    for step in range(5 * GROWTH_STEPS):
        scale = scale.after(overflow=step % 3001 == 7)
        assert scale.scale.hex().startswith(("0x1.0000000000000p",))
    assert LossScale.model_validate_json(scale.model_dump_json()) == scale
