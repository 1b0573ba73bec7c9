"""linear_probe: against scikit-learn's logistic regression, and on awkward columns."""

import math

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from normscope.evaluation import ProbeResult, linear_probe


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features and labels to train on, and to test on."""
    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    test = torch.arange(len(x)) % 4 == 0
    return x[~test].float(), y[~test], x[test].float(), y[test]


@pytest.mark.parametrize("l2", [1e-4, 1e-2])
def test_linear_probe_reaches_scikit_learns_loss_and_accuracy(digits, l2: float) -> None:
    x, y, x_test, y_test = digits
    ours = linear_probe(x, y, x_test, l2=l2)
    scaler = StandardScaler().fit(x.double())
    standardised = scaler.transform(x.double())
    model = LogisticRegression(C=1 / (len(x) * l2), tol=1e-8, max_iter=10_000)
    model.fit(standardised, y)
    w, b = torch.tensor(model.coef_), torch.tensor(model.intercept_)
    logits = torch.tensor(standardised) @ w.T + b
    expected = torch.nn.functional.cross_entropy(logits, y) + l2 / 2 * w.square().sum()
    assert ours.converged
    assert ours.loss == pytest.approx(expected.item(), rel=1e-5)
    theirs = model.score(scaler.transform(x_test.double()), y_test)
    assert ours.accuracy(y_test) == pytest.approx(theirs, abs=0.005)
    assert ours.accuracy(y_test) > 0.95


def test_linear_probe_weight_and_bias_act_on_raw_features(digits) -> None:
    x, y, x_test, _ = digits
    result = linear_probe(5 * x + 3, y, 5 * x_test + 3)
    expected = (5 * x_test + 3) @ result.weight.T + result.bias
    torch.testing.assert_close(result.logits, expected)
    assert torch.equal(result.predictions, result.logits.argmax(1))
    # standardised features are the same, and so is their classifier
    plain = linear_probe(x, y, x_test)
    torch.testing.assert_close(result.logits, plain.logits, rtol=1e-3, atol=1e-3)


def test_linear_probe_gives_the_same_result_twice_and_leaves_features_alone(digits) -> None:
    x, y, x_test, _ = digits
    x, x_test = x.double(), x_test.double()
    before = x.clone()
    first, second = (linear_probe(x, y, x_test) for _ in range(2))
    assert torch.equal(first.logits, second.logits)
    assert torch.equal(x, before)


def test_linear_probe_leaves_constant_columns_out(digits) -> None:
    x, y, x_test, _ = digits
    constant = torch.full((len(x), 1), 0.1)
    constant[::2] = 0.1 + 1e-8  # the next number in float32
    assert len(constant.unique()) == 2
    more = linear_probe(torch.cat([x, constant], 1), y, torch.cat([x_test, x_test[:, 20:21]], 1))
    assert more.weight[:, -1].abs().max() == 0
    torch.testing.assert_close(more.logits, linear_probe(x, y, x_test).logits, rtol=1e-3, atol=1e-3)


def test_linear_probe_maps_any_labels_back(digits) -> None:
    x, y, x_test, _ = digits
    names = torch.randperm(200)[:10] - 100
    result = linear_probe(x, names[y], x_test)
    assert torch.equal(result.classes, names.sort().values)
    assert torch.equal(result.predictions, names[linear_probe(x, y, x_test).predictions])


def test_linear_probe_takes_few_steps_on_collinear_features() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(600) % 3
    z = torch.randn(600, 40, generator=generator) + 0.3 * torch.eye(3, 40)[y]
    z *= 10 ** torch.linspace(0, -4, 40)  # standard deviations
    x = (z @ torch.randn(40, 60, generator=generator)).double()  # of rank 40
    found = linear_probe(x, y, x, steps=150)
    assert found.converged  # plain L-BFGS is not yet
    assert slope_of(found, x, y) < 1e-5


@pytest.mark.parametrize("l2", [1e-4, 1e12])
def test_linear_probe_of_more_columns_than_rows_is_at_the_minimum(l2: float) -> None:
    x = torch.randn(30, 200, generator=torch.Generator().manual_seed(0)).double()
    y = torch.arange(30) % 3
    found = linear_probe(x, y, x, l2=l2)
    assert found.converged
    assert slope_of(found, x, y, l2) < 1e-5
    if l2 < 1:
        assert found.accuracy(y) == 1


def slope_of(found: ProbeResult, x: Tensor, y: Tensor, l2: float = 1e-4) -> float:
    """The largest entry of the objective's gradient, on standardised features."""
    mean, std = x.mean(0), x.std(0, correction=0)
    w = (found.weight.double() * std).requires_grad_()
    b = (found.bias.double() + found.weight.double() @ mean).requires_grad_()
    loss = torch.nn.functional.cross_entropy((x - mean) / std @ w.T + b, y)
    (loss + l2 / 2 * w.square().sum()).backward()
    return max(w.grad.abs().max().item(), b.grad.abs().max().item())


def test_linear_probe_says_when_it_has_not_converged(digits) -> None:
    x, y, x_test, _ = digits
    assert not linear_probe(x, y, x_test, steps=3).converged


def test_linear_probe_works_on_half_features_inside_no_grad_and_autocast(digits) -> None:
    x, y, x_test, y_test = digits
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        result = linear_probe(x.half(), y, x_test.half())
    assert result.logits.dtype == torch.float32
    assert result.converged
    torch.testing.assert_close(result.logits, linear_probe(x, y, x_test).logits)
    assert result.accuracy(y_test) > 0.95


@pytest.mark.gpu
def test_linear_probe_on_a_gpu_equals_the_cpu(digits) -> None:
    x, y, x_test, y_test = (t.double() if t.is_floating_point() else t for t in digits)
    cpu = linear_probe(x, y, x_test)
    cuda = linear_probe(x.cuda(), y.cuda(), x_test.cuda())
    assert cuda.loss == pytest.approx(cpu.loss, rel=1e-4)
    assert cuda.accuracy(y_test) == pytest.approx(cpu.accuracy(y_test), abs=0.005)


def test_linear_probe_refuses_wrong_arguments_in_one_line() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    nan = torch.full((4, 3), math.nan)
    cases = [
        (lambda: linear_probe(x, y[:3], x), "labels must be an integer tensor of shape"),
        (lambda: linear_probe(x, 0 * y, x), "labels must be of two classes or more"),
        (lambda: linear_probe(x, y, x[:, :2]), "test_features must be of 3 columns on cpu"),
        (lambda: linear_probe(x[:0], y[:0], x), "features must be at least one row"),
        (lambda: linear_probe(nan, y, x), "features must be finite"),
        (lambda: linear_probe(x, y, nan), "test_features must be finite"),
        (lambda: linear_probe(x, y, x, l2=0.0), "l2 must be a positive finite number, got 0"),
        (lambda: linear_probe(x, y, x, steps=0), "steps must be a positive integer, got 0"),
        (lambda: linear_probe(x, y, x).accuracy(y[:2]), r"truth must be of shape \(4,\)"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
