"""What kernels do besides their distribution: limits, known answers, clocks, blocks, calls, and how they end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.denoiser import AnyDenoiser
from tabes.errors import UsageError
from tabes.kernels import DFM, MDLM, ForwardBackward, ReMDM, ReMDMLoop
from tabes.kernels.base import Chances, Kernel, Now
from tabes.schedules import LogLinearSchedule
from tests.conftest import MASK

NAMES = ["mdlm", "mdlm-nucleus", "remdm", "remdm-cap", "remdm-rescale", "remdm-conf", "remdm-loop", "dfm"]
NAMES += ["forward-backward"]
REVISING: list[Kernel] = [
    ReMDM(eta=0.3),
    ReMDM(rate="rescale", eta=0.5),
    ReMDM(rate="conf"),
    ReMDMLoop(eta=0.1),
    DFM(),
    ForwardBackward(),
]


def canvas_of(rows: int = 1, new: int = 12, **arguments: Any) -> Canvas:
    return Canvas.create(torch.tensor([[3, 4, 5]] * rows), mask_id=MASK, max_new_tokens=new, **arguments)


def ragged(**arguments: Any) -> Canvas:
    """Two rows of different length, a hole inside the longer prompt."""
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    return Canvas.create(prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=9, **arguments)


def run(model: AnyDenoiser, canvas: Canvas, kernel: Any, seed: int = 3, **arguments: Any) -> list[tabes.Step]:
    return list(tabes.decode(model, canvas, kernel, seed=seed, **arguments))


def trace(steps: list[tabes.Step]) -> list[Any]:
    """What was written and masked again, without the steps that changed nothing."""
    return [(step.positions, step.tokens, step.remasked) for step in steps if any(step.positions + step.remasked)]


def chances_at(kernel: Kernel, step: int, written: float = 0.5) -> Chances:
    """Of a step on a canvas of which the first row is written and the second masked."""
    times = kernel.grid(kernel.num_steps)
    masked_BL = torch.tensor([[False, True]])
    canvas = canvas_of(new=2).select(torch.tensor([0])).map(lambda value_BL: value_BL[:, 3:])
    return kernel.chances(
        Now(masked_BL, ~masked_BL, times[step : step + 1], times[step + 1 :][:1]), kernel.begin(canvas)
    )


def first(value_BL: Tensor) -> float:
    return float(value_BL.clamp(0, 1).flatten()[0])


@pytest.mark.parametrize("rate", ["cap", "rescale", "conf"])
@pytest.mark.parametrize("off", [{"eta": 0.0}, {"switch": 0.0}])
def test_remdm_that_takes_nothing_back_is_mdlm(golden_model: tabes.Denoiser, rate: str, off: dict[str, float]) -> None:
    shared: dict[str, Any] = {"num_steps": 20, "top_p": 0.9, "nucleus": "drop"}
    mine, theirs = (
        run(golden_model, canvas_of(3), kernel) for kernel in (ReMDM(rate=rate, **off, **shared), MDLM(**shared))
    )
    assert trace(mine) == trace(theirs)
    assert len(mine) == len(theirs)


def test_dfm_without_its_corrector_is_mdlm() -> None:
    dfm, mdlm = DFM(num_steps=10, beta=0.0), MDLM(num_steps=10)
    torch.testing.assert_close(dfm.grid(10), mdlm.grid(10), rtol=0, atol=1e-4)
    now = Now(
        torch.ones(1, 1, dtype=torch.bool),
        torch.zeros(1, 1, dtype=torch.bool),
        torch.tensor([0.4]),
        torch.tensor([0.3]),
    )
    torch.testing.assert_close(dfm.chances(now, None), mdlm.chances(now, None))


def test_the_loop_off_is_an_interrupted_mdlm(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, canvas_of(3), ReMDMLoop(num_steps=40, eta=0.0))
    assert not any(any(step.remasked) for step in steps)
    assert not any(any(step.positions) for step in steps[20:38]), "while the loop lasts nothing is revealed either"


def test_switched_rates_are_off_until_then_and_the_same_afterwards() -> None:
    for step in (10, 60, 64, 65, 100):
        late, always = (chances_at(ReMDM(eta=0.04, switch=switch), step) for switch in (0.5, 1.0))
        expected = always if float(late.remask_BL.max()) > 0 else chances_at(ReMDM(eta=0.0), step)
        torch.testing.assert_close(late, expected)
        assert (float(late.remask_BL.max()) > 0) == (step >= 65)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.3])
def test_the_eps_of_the_log_linear_schedule_changes_nothing(eps: float) -> None:
    """MDLM's cached update has masking probability t, the uncached one (1 - eps) t: the same chances."""
    t, s = torch.tensor(0.8, dtype=torch.float64), torch.tensor(0.65, dtype=torch.float64)
    alpha = LogLinearSchedule(eps).alpha
    assert float((alpha(s) - alpha(t)) / (1 - alpha(t))) == pytest.approx(0.15 / 0.8)


@pytest.mark.parametrize(("schedule", "masked"), [("linear", 0.5), ("cosine", 0.7071), ("polynomial", 0.25)])
def test_schedules_reveal_at_their_own_pace(golden_model: tabes.Denoiser, schedule: str, masked: float) -> None:
    """Half of the steps in, the share that is masked is 1 - alpha(1/2)."""
    steps = run(golden_model, canvas_of(200), MDLM(num_steps=8, schedule=schedule))
    share = float(steps[3].canvas.time_B.mean())
    assert abs(share - masked) < 4 * (masked * (1 - masked) / 2400) ** 0.5


def test_known_answers() -> None:
    cap = ReMDM(eta=0.04)
    at = {step: chances_at(cap, step) for step in (0, 64, 120, 126, 127)}
    assert first(at[0].reveal_BL) == pytest.approx(0.00781, abs=1e-5)
    assert first(at[64].reveal_BL) == pytest.approx(0.05562, abs=1e-5)
    assert first(at[120].reveal_BL) == pytest.approx(0.72488, abs=1e-4)
    assert [first(at[step].reveal_BL) for step in (126, 127)] == pytest.approx([1.0, 1.0])
    assert [first(at[step].remask_BL) for step in (64, 120)] == pytest.approx([0.04, 0.04])
    back = {step: first(chances_at(ForwardBackward(), step).remask_BL) for step in (1, 2, 64, 127)}
    assert list(back.values()) == pytest.approx([1.0, 0.5, 0.01562, 0.00787], abs=1e-5)
    assert first(chances_at(ForwardBackward(), 127).reveal_BL) == 1.0


@pytest.mark.parametrize(
    "kernel", REVISING, ids=lambda kernel: f"{type(kernel).__name__}-{getattr(kernel, 'rate', '')}"
)
def test_masks_fall_on_time_though_tokens_are_taken_back(golden_model: tabes.Denoiser, kernel: Kernel) -> None:
    """ReMDM's posterior leaves the share that is masked as it is without: 1 - alpha."""
    if isinstance(kernel, ReMDMLoop):
        expected = [1 - 0.9 * (1 - time) / 0.45 if time > 0.55 else 0.1 for time in (0.75, 0.5, 0.25)]
    elif isinstance(kernel, ReMDM) and kernel.rate != "conf":
        expected = [0.75, 0.5, 0.25]
    else:
        expected = []
    kernel = replace(kernel, num_steps=40)
    steps = run(golden_model, canvas_of(100), kernel)
    assert sum(len(row) for step in steps for row in step.remasked) > 20
    assert not bool(steps[-1].canvas.masked_BL.any())
    for at, share in zip((9, 19, 29), expected, strict=False):
        assert abs(float(steps[at].canvas.time_B.mean()) - share) < 0.06


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block_length", [None, 4])
@pytest.mark.parametrize("wrapper", ["plain", "guided", "cached", "cached in blocks"])
def test_a_row_of_a_batch_decodes_as_it_would_alone(
    golden_model: tabes.Denoiser, name: str, block_length: int | None, wrapper: str
) -> None:
    model: AnyDenoiser = {
        "plain": golden_model,
        "guided": Guidance(golden_model, 0.7),
        "cached": RowCache(golden_model, 2),
        "cached in blocks": RowCache(golden_model, "block"),
    }[wrapper]
    canvas, kernel = ragged(block_length=block_length), tabes.sampler(name, num_steps=30)
    steps = run(model, canvas, kernel)
    tokens_BL = steps[-1].canvas.tokens_BL
    assert MASK not in tokens_BL
    assert tokens_BL[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL])
    for row in range(2):
        content_L = ~canvas.padding_BL[row]
        single = canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])  # noqa: B023
        alone = run(model, single, kernel, seed=3 + row)
        assert alone[-1].canvas.tokens_BL[0].equal(tokens_BL[row][content_L])


@pytest.mark.parametrize(
    "kernel", REVISING, ids=lambda kernel: f"{type(kernel).__name__}-{getattr(kernel, 'rate', '')}"
)
def test_a_block_is_left_when_its_steps_are_over_and_stays_as_it_is(
    golden_model: tabes.Denoiser, kernel: Kernel
) -> None:
    """Three blocks of four: 14 steps in the first two, 13 in the last, one more where something is left to fill."""
    canvas = canvas_of(4, block_length=4)
    steps = run(golden_model, canvas, replace(kernel, num_steps=41))
    for row in range(4):
        blocks = [{int(canvas.block_BL[row, at]) for at in step.positions[row] + step.remasked[row]} for step in steps]
        touched = [min(found) for found in blocks if found]
        assert all(len(found) <= 1 for found in blocks)
        assert touched == sorted(touched)
        starts = [min(at for at, found in enumerate(blocks) if found == {block}) for block in range(3)]
        if not isinstance(kernel, DFM):
            assert 14 <= starts[1] <= 14 + 1 + 13
            assert starts[2] >= 28


def test_steps_are_shared_out_as_budgets_share_them(golden_model: tabes.Denoiser) -> None:
    state = ForwardBackward(num_steps=41).init(canvas_of(block_length=4))
    clock, lengths = state.clock, []
    for _ in range(3):
        lengths.append(int(clock.steps_B))
        clock = clock.tick(torch.tensor([True]))
    assert lengths == [14, 14, 13]
    assert bool(clock.done())
    with pytest.raises(UsageError, match="num_steps is 2 but there are 3 blocks; give at least one step per block"):
        run(golden_model, canvas_of(block_length=4), MDLM(num_steps=2))


def test_the_network_is_called_only_when_something_is_revealed(golden_model: tabes.Denoiser) -> None:
    for kernel in (MDLM(num_steps=200), ReMDM(num_steps=200)):
        for step in run(golden_model, canvas_of(), kernel):
            revealed = sum(map(len, step.positions))
            assert step.cost.forward_calls == (revealed > 0)
            assert step.cost.head_rows == revealed


def test_uncached_calls_at_every_step_and_changes_nothing_else(golden_model: tabes.Denoiser) -> None:
    cached, uncached = (run(golden_model, canvas_of(), MDLM(num_steps=60, cached=cached)) for cached in (True, False))
    assert [step.cost.forward_calls for step in uncached] == [1] * len(uncached)
    assert trace(cached) == trace(uncached)


def test_what_is_left_is_filled_with_the_best_tokens(golden_model: tabes.Denoiser) -> None:
    """dfm stops before time 0, so masks are left over."""
    filled = 0
    for seed in range(8):
        steps = run(golden_model, canvas_of(1, 30), DFM(num_steps=8), seed)
        if len(steps) == len(DFM().grid(8)):
            last = steps[-1]
            best_BL = golden_model.predict(last.before, last.before.masked_BL).top_token_BL
            assert list(last.tokens[0]) == best_BL[last.before.masked_BL].tolist()
            assert last.cost.forward_calls == 1
            filled += len(last.tokens[0])
    assert filled


def test_other_ways_to_end(golden_model: tabes.Denoiser) -> None:
    best, drawn, none = (
        run(golden_model, canvas_of(20, 30), DFM(num_steps=8, fill=fill)) for fill in ("argmax", "draw", "none")
    )
    assert len(best) == len(drawn) == len(none) + 1
    assert trace(best)[:-1] == trace(drawn)[:-1]
    assert trace(best)[-1] != trace(drawn)[-1]
    assert not bool(none[-1].canvas.masked_BL.any())


def test_temperature_0_writes_the_best_tokens(golden_model: tabes.Denoiser) -> None:
    for name in NAMES:
        for step in run(golden_model, canvas_of(2), tabes.sampler(name, temperature=0.0, num_steps=12)):
            best_BL = golden_model.predict(step.before, step.before.masked_BL).top_token_BL
            for row, (positions, tokens) in enumerate(zip(step.positions, step.tokens, strict=True)):
                assert best_BL[row, list(positions)].tolist() == list(tokens)


def test_a_stop_ends_a_row(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, canvas_of(6, 30), ReMDM(num_steps=20), stop=[52, 63, 30])
    assert bool(steps[-1].done_B.all())
    assert len({int(step.done_B.sum()) for step in steps}) > 1


def test_a_timed_network_is_told_the_kernels_time(
    golden_model: tabes.Denoiser, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []
    real = type(golden_model).predict

    def spy(self: Any, *args: Any, time_B: Tensor | None = None, **rest: Any) -> Any:
        assert time_B is not None
        told.append(float(time_B[0]))
        return real(self, *args, time_B=time_B, **rest)

    monkeypatch.setattr(type(golden_model), "predict", spy)
    run(golden_model, canvas_of(), MDLM(num_steps=5, cached=False, fill="none"))
    assert told == pytest.approx(torch.linspace(1, 1e-5, 6)[: len(told)].tolist())
    told.clear()
    run(golden_model, canvas_of(), MDLM(num_steps=4, cached=False, schedule="cosine"))
    assert told[1] == pytest.approx(torch.sin(torch.tensor(torch.pi / 2 * (0.75 + 2.5e-6))).item(), abs=1e-6)
    told.clear()
    run(golden_model, canvas_of(8), ReMDMLoop(num_steps=10, eta=0.3))
    assert sum(abs(time - 0.1) < 1e-9 for time in told) >= 3, "it hears the share that is masked"


def test_128_steps_by_default() -> None:
    assert {name: tabes.sampler(name).num_steps for name in NAMES} == dict.fromkeys(NAMES, 128)  # type: ignore[attr-defined]


def test_presets_have_the_papers_values() -> None:
    built: dict[str, Any] = {name: tabes.sampler(name) for name in NAMES}
    assert built["mdlm"].top_p is None
    for name in NAMES[1:]:
        assert (built[name].top_p, built[name].nucleus) == (0.9, "drop")
    assert built["remdm-cap"].eta == 0.04
    torch.testing.assert_close(chances_at(built["remdm"], 64), chances_at(built["remdm-cap"], 64))
    assert built["remdm-rescale"].eta == 0.045
    loop = built["remdm-loop"]
    assert (loop.eta, loop.t_on, loop.t_off, loop.alpha_on) == (0.055, 0.55, 0.05, 0.9)
    assert [built[name].revises for name in NAMES] == [False, False] + [True] * 7


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("mdlm", {"num_steps": 0}, "num_steps is 0; it must be 1 or more"),
        ("mdlm", {"schedule": "sigmoid"}, "schedule is 'sigmoid'; it must be 'cosine' or"),
        ("mdlm", {"temperature": -1.0}, "temperature is -1.0"),
        ("mdlm", {"nucleus": "both"}, "nucleus is 'both'; it must be 'keep' or 'drop'"),
        ("mdlm", {"tokens_per_step": 2}, "has no tokens_per_step"),
        ("remdm", {"eta": 1.5}, "eta is 1.5; it must be between 0 and 1"),
        ("remdm", {"rate": "loop"}, "rate is 'loop'; it must be 'cap' or"),
        ("remdm-loop", {"t_on": 0.01}, "t_off is 0.05 and t_on 0.01; the loop must not end before it begins"),
        ("dfm", {"beta": -1.0}, "beta is -1.0"),
    ],
)
def test_bad_parameters(name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tabes.sampler(name, **parameters)
