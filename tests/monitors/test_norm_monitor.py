"""NormMonitor in training loops: what it shows, keeps, and raises."""

import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from normscope import GradScale
from normscope.losses import info_nce, negative_cosine
from normscope.monitors import MONITORS, NormMonitor

AT_LOG_POINTS = {
    *("rad_per_step", "rad_per_step_by_layer", "steps_between"),
    *("weight_size", "weight_growth", "rank_limit"),
}


def test_two_lines_in_a_plain_loop_show_the_norms() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    monitor = NormMonitor()
    x = torch.randn(32, 8)
    norms = []
    for _ in range(10):
        z = net(x)
        monitor.observe(z, lr=0.5)
        norms.append(z.norm(dim=1).mean().item())
        loss = info_nce(z, net(x + 0.1 * torch.randn_like(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    summary = monitor.summary()
    assert summary["step"] == 9
    assert summary["norm_mean"] == pytest.approx(norms[-1])
    assert summary["lr_over_norm"] == pytest.approx(0.5 / norms[-1])
    assert 1 < summary["rank"] <= 4
    assert monitor.alarms == []
    json.dumps(summary)


def test_observe_returns_what_records_hold_as_python_numbers() -> None:
    monitor = NormMonitor(classes=3, weights={"w": torch.randn(2, 2)})
    z, t = torch.randn(2, 6, 4)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    values = [
        monitor.observe((i + 1) * z, lr=0.1 * i, targets=t, labels=labels, grad=t) for i in range(3)
    ]
    assert all(isinstance(v, Tensor) for v in values[2].values())
    assert "growth_seen" not in values[0]
    records = monitor.records()
    for i, (record, shown) in enumerate(zip(records, values, strict=True)):
        expected = {"step": i, "lr": 0.1 * i, **{k: v.tolist() for k, v in shown.items()}}
        rank = record.pop("rank", None)
        assert {k: v for k, v in record.items() if k not in AT_LOG_POINTS} == expected
        assert (rank is not None) == (i == 2)  # at the log point alone
    assert monitor.records() == []
    assert monitor.summary()["norm_by_class"] == records[2]["norm_by_class"]


def test_summary_does_not_take_observations_from_records() -> None:
    monitor = NormMonitor()
    for _ in range(3):
        monitor.observe(torch.randn(4, 3), lr=0.1)
    assert monitor.summary() == monitor.summary()
    assert [r["step"] for r in monitor.records()] == [0, 1, 2]


def test_a_fresh_monitor_has_nothing_to_say() -> None:
    monitor = NormMonitor()
    assert (monitor.summary(), monitor.records(), monitor.alarms) == ({}, [], [])


def test_every_skips_the_calls_between_and_divides_growth_by_the_steps() -> None:
    monitor = NormMonitor(every=3)
    unit = torch.eye(4)
    shown = [monitor.observe((1 + step) * unit, lr=0.1) for step in range(7)]
    assert [bool(values) for values in shown] == [True, False, False] * 2 + [True]
    assert [r["step"] for r in monitor.records()] == [0, 3, 6]
    assert shown[3]["growth_seen"].item() == pytest.approx((4**2 - 1**2) / 3)
    assert shown[6]["growth_seen"].item() == pytest.approx((7**2 - 4**2) / 3)
    assert monitor.summary()["norm_mean_trend"] == pytest.approx(1)


def test_step_can_be_set_when_training_resumes() -> None:
    monitor = NormMonitor()
    monitor.step = 500
    monitor.observe(torch.randn(4, 3), lr=0.1)
    assert monitor.summary()["step"] == 500


def test_keep_bounds_what_is_held() -> None:
    monitor = NormMonitor(keep=5)
    for _ in range(20):
        monitor.observe(torch.randn(4, 3), lr=0.1)
    assert len(monitor._pending) == 5
    monitor.summary()
    assert len(monitor._pending) == 0
    for _ in range(3):
        monitor.observe(torch.randn(4, 3), lr=0.1)
        monitor.summary()
    assert [r["step"] for r in monitor.records()] == [18, 19, 20, 21, 22]
    assert len(monitor._seen) == 5


def test_observe_holds_no_graph_and_no_embeddings_that_the_optimizer_moves() -> None:
    z = torch.eye(4).requires_grad_()
    monitor = NormMonitor()
    shown = monitor.observe(z, lr=0.1)
    with torch.no_grad():
        z.copy_(torch.ones(4, 4))
    assert not any(v.requires_grad for v in shown.values())
    assert monitor.summary()["rank"] == pytest.approx(4)


def test_observe_takes_a_retained_gradient_by_itself() -> None:
    net = nn.Linear(6, 3)
    x, t = torch.randn(8, 6), torch.randn(8, 3)
    monitor = NormMonitor()
    z = net(x)
    negative_cosine(z, t).backward()
    assert "growth_predicted" not in monitor.observe(z, lr=0.1)  # and no warning
    z = net(x)
    z.retain_grad()
    negative_cosine(z, t).backward()
    shown = monitor.observe(z, lr=0.1)
    expected = (0.1 * z.grad).square().sum(1).mean()
    torch.testing.assert_close(shown["growth_predicted"], expected)


@pytest.mark.parametrize(
    ("power", "of"), [(0.0, "each"), (1.0, "each"), (1.0, "mean"), (1.0, "share")]
)
def test_free_embeddings_grow_as_predicted_step_after_step(power: float, of) -> None:
    free = nn.Parameter(torch.randn(16, 6, dtype=torch.float64))
    layer = GradScale(power, of=of)
    optimizer = torch.optim.SGD([free], lr=0.5)
    monitor = NormMonitor(power=power, power_of=of)
    for _ in range(6):
        z = layer(free) * 1
        z.retain_grad()
        optimizer.zero_grad()
        info_nce(z[:8], z[8:]).backward()
        monitor.observe(z, lr=0.5)
        optimizer.step()
    records = monitor.records()
    for now, later in pairwise(records):
        assert now["growth_predicted"] > 1e-6
        assert later["growth_seen"] == pytest.approx(now["growth_predicted"], rel=1e-6)


def test_weights_are_read_anew_at_each_observation() -> None:
    w = nn.Parameter(torch.ones(2, 2))
    monitor = NormMonitor(weights={"w": w})
    z = torch.eye(3)
    assert monitor.observe(z, lr=1.0)["lr_over_weight_squared"] == 0.25
    with torch.no_grad():
        w.mul_(2)
    assert monitor.observe(z, lr=1.0)["lr_over_weight_squared"] == 0.0625


def test_a_collapsing_loop_raises_the_collapse_alarm_once() -> None:
    # both sides are drawn together, and nothing pushes rows apart or stops a gradient
    net = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    monitor = NormMonitor()
    x = torch.randn(64, 8)
    for _ in range(200):
        z = net(x)
        monitor.observe(z, lr=1.0)
        if monitor.step % 20 == 0:
            monitor.summary()
        loss = negative_cosine(z, net(x[torch.randperm(64)]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    monitor.summary()
    assert len(monitor.alarms) == 1
    assert "embeddings collapse to one direction, their mean cosine is 0.99" in monitor.alarms[0]
    first = int(monitor.alarms[0].split(":")[0].removeprefix("step "))
    cosines = [r["mean_cosine"] for r in monitor.records()]
    assert cosines[first] > 0.999 >= max(cosines[:first])


def test_embeddings_on_one_line_raise_an_alarm_that_log_points_do_not_repeat() -> None:
    monitor = NormMonitor()
    line = torch.tensor([[1.0], [-1.0], [2.0], [-2.0]]) * torch.ones(1, 5)
    for _ in range(3):
        for _ in range(2):
            monitor.observe(line, lr=0.1)
        monitor.records()
    assert len(monitor.alarms) == 1
    assert monitor.alarms[0].startswith("step 1: embeddings lie near one line, their RankMe is 1.0")


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_broken_row_raises_an_alarm_and_breaks_nothing(value: float) -> None:
    monitor = NormMonitor(classes=2)
    z, t = torch.randn(2, 10, 4)
    labels = torch.arange(10) % 2
    for step in range(6):
        broken = z.clone()
        if step in (2, 3, 5):
            broken[0, 1] = value
        monitor.observe(broken, lr=0.1, targets=t, labels=labels, grad=broken)
    summary = monitor.summary()
    assert summary["nonfinite"] == pytest.approx(0.1)
    assert math.isnan(summary["rank"])
    assert [line.split(".")[0] for line in monitor.alarms] == [
        "step 2: 10% of the embeddings are NaN or infinite",
        "step 5: 10% of the embeddings are NaN or infinite",  # it had cleared
    ]


def test_a_broken_gradient_raises_an_alarm() -> None:
    monitor = NormMonitor()
    monitor.observe(torch.randn(4, 3), lr=0.1, grad=torch.full((4, 3), math.nan))
    monitor.records()
    assert monitor.alarms[0].startswith("step 0: the gradient in the embeddings is NaN")
    assert len(monitor.alarms) == 1


@pytest.mark.parametrize(
    ("scales", "advice"),
    [
        ((1.0, 0.1, 1e-4, 1e-4), "Lower the weight decay, or cut the weights by less."),
        ((5000.0, 4.0, 4.0), "Lower the weight decay, or cut the weights by less."),
        ((20.0, 300.0, 1.5e4, 1.5e4), "Lower the lr, or add weight decay."),
        ((0.01, 1.0, 11.0, 12.0), "Lower the lr, or add weight decay."),
        ((0.0, 0.0, 0.5), "Lower the weight decay, or cut the weights by less."),
    ],
)
def test_norms_that_vanish_or_explode_raise_one_alarm(scales, advice: str) -> None:
    monitor = NormMonitor()
    for scale in scales:
        monitor.observe(scale * torch.eye(5), lr=0.1)
    monitor.summary()
    assert len(monitor.alarms) == 1
    assert monitor.alarms[0].endswith(advice)


def test_single_rows_columns_and_zeros_raise_no_false_collapse() -> None:
    for z in (torch.ones(1, 4), torch.tensor([[1.0], [-1.0]]), torch.eye(2)):
        monitor = NormMonitor()
        monitor.observe(z, lr=0.1)
        monitor.summary()
        assert monitor.alarms == []


def test_every_registered_monitor_takes_part() -> None:
    monitor = NormMonitor()
    z = torch.randn(4, 3)
    monitor.observe(z, lr=0.1)
    shown = set(monitor.observe(z, lr=0.1, grad=z))
    assert set(MONITORS) == {"norms", "rates", "growth", "geometry"}
    assert shown >= {"norm_mean", "lr_over_norm", "growth_seen", "radial_share", "mean_cosine"}


@pytest.mark.parametrize("argument", ["every", "keep", "classes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_must_be_positive_integers(argument: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{argument} must be an integer of at least 1"):
        NormMonitor(**{argument: value})


def test_monitor_names_what_is_wrong_with_its_arguments() -> None:
    with pytest.raises(ValueError, match="power must be a finite number"):
        NormMonitor(power=math.nan)
    with pytest.raises(ValueError, match=r"weights\['w'\] must be a floating-point tensor"):
        NormMonitor(weights={"w": torch.arange(3)})
    with pytest.raises(ValueError, match="z must be a floating-point tensor"):
        NormMonitor().observe([[1.0]], lr=0.1)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("shape", [(64, 16), (2048, 128), (1024, 2048)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_observe_never_makes_the_host_wait(shape, dtype) -> None:
    weights = {str(i): nn.Parameter(torch.randn(32, 32, device="cuda")) for i in range(4)}
    monitor = NormMonitor(power=1.0, classes=10, weights=weights)
    z, t = torch.randn(2, *shape, device="cuda", dtype=dtype)
    labels = torch.randint(10, shape[:1], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for _ in range(3):
                monitor.observe(z, lr=0.1, targets=t, labels=labels, grad=t)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    records = monitor.records()
    on_cpu = NormMonitor(
        power=1.0, classes=10, weights={name: w.cpu() for name, w in weights.items()}
    )
    on_cpu.observe(z.cpu(), lr=0.1, targets=t.cpu(), labels=labels.cpu(), grad=t.cpu())
    expected = on_cpu.summary()
    for name, value in expected.items():
        if name not in ("step", "rank", "rank_limit"):  # the rank comes later
            assert records[0][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    assert records[2]["rank"] == pytest.approx(expected["rank"], rel=1e-5)


def scaled_network(power: float) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), GradScale(power))


def test_monitor_finds_the_power_of_the_grad_scale_that_rows_have_passed() -> None:
    net, x = scaled_network(0.5), torch.randn(8, 6)
    found, given = NormMonitor(), NormMonitor(power=0.5)
    z = net(x)
    z1, z2 = z.chunk(2)
    whole = torch.cat([z1, z2])
    whole.retain_grad()
    info_nce(whole[:4], whole[4:]).backward()
    for monitor in (found, given):
        monitor.observe(whole, lr=0.1)
    assert found.power == 0.5
    assert found.summary()["growth_predicted"] == given.summary()["growth_predicted"] > 0


def test_grad_scale_is_not_counted_twice_before_or_after_it() -> None:
    # the gradient that reaches the network is one, wherever it is read
    net, x = scaled_network(1.0), torch.randn(8, 6)
    before = net[:-1](x)
    before.retain_grad()
    after = net[-1](before)
    after.retain_grad()
    info_nce(after[:4], after[4:]).backward()
    grown = []
    for z in (before, after):
        monitor = NormMonitor()
        monitor.observe(z, lr=0.1)
        grown.append(monitor.summary()["growth_predicted"])
    assert grown[0] == pytest.approx(grown[1], rel=1e-5)


@pytest.mark.parametrize(("of", "message"), [(1.0, "passed none"), (0.5, "one of power 0.5")])
def test_a_power_that_the_rows_have_not_passed_is_refused(of: float, message: str) -> None:
    net = scaled_network(of)
    z = net[:-1](torch.randn(8, 6)) if of == 1 else net(torch.randn(8, 6))
    monitor = NormMonitor(power=1.0)
    with pytest.raises(ValueError, match=rf"a GradScale of power 1 \(each\), got '.*{message}"):
        monitor.observe(z, lr=0.1)
    assert monitor.summary() == {}


def test_a_power_of_zero_or_of_another_norm_is_refused_behind_a_grad_scale() -> None:
    z = scaled_network(1.0)(torch.randn(8, 6))
    with pytest.raises(ValueError, match=r"passed no GradScale, got 'one of power 1 \(each\)'"):
        NormMonitor(power=0.0).observe(z, lr=0.1)
    with pytest.raises(ValueError, match=r"of power 1 \(mean\), got"):
        NormMonitor(power=1.0, power_of="mean").observe(z, lr=0.1)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's
def test_a_power_is_believed_where_no_graph_says_otherwise() -> None:
    monitor = NormMonitor(power=1.0)
    monitor.observe(torch.randn(8, 6), lr=0.1)
    compiled = torch.compile(scaled_network(1.0), backend="aot_eager")
    monitor.observe(compiled(torch.randn(8, 6)), lr=0.1)
    assert len(monitor.records()) == 2
