"""suggest_cut and scale_invariant_parameters leave the network alone and tell the truth."""

import copy

import pytest
import torch
from torch import Tensor, nn

from normscope import cut_init_, scale_invariant_parameters, suggest_cut


def projector() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 32),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(32, 8, bias=False),
    )


class Residual(nn.Module):
    """Two convolutions beside a shortcut, the last gain zero at the start, as in ResNets."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn0 = nn.BatchNorm2d(8)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn0(self.stem(x)).relu()
        h = (h + self.bn2(self.conv2(self.bn1(self.conv1(h)).relu()))).relu()
        return self.head(h.mean((2, 3)))


def mean_norm(module: nn.Module, x: Tensor) -> float:
    state = torch.random.get_rng_state()
    norm = module(x).detach().norm(dim=-1).mean().item()
    torch.random.set_rng_state(state)
    return norm


@pytest.mark.parametrize("scope", ["all", "weights", "last"])
@pytest.mark.parametrize("target", [0.1, 1.0, 30.0])
def test_suggest_cut_brings_the_mean_norm_to_the_target(scope, target: float) -> None:
    net, x = projector(), torch.randn(64, 6)
    c = suggest_cut(net, x, target, scope=scope)
    assert mean_norm(cut_init_(net, c, scope=scope), x) == pytest.approx(target, rel=1e-3)


@pytest.mark.parametrize("train", [True, False])
def test_suggest_cut_touches_neither_module_nor_random_state(train: bool) -> None:
    net, x = projector().train(train), torch.randn(64, 6)
    before, rng = copy.deepcopy(net.state_dict()), torch.random.get_rng_state()
    suggest_cut(net, x)
    assert net.training == train
    assert torch.equal(torch.random.get_rng_state(), rng)
    after = net.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[k], before[k]) for k in before)
    cut_init_(net)  # not marked as cut


def test_suggest_cut_refuses_a_network_that_is_cut_already() -> None:
    with pytest.raises(RuntimeError, match="has been cut already"):
        suggest_cut(cut_init_(projector()), torch.randn(8, 6))


def test_suggest_cut_is_one_where_the_target_is_met() -> None:
    class OnSphere(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return nn.functional.normalize(super().forward(input))

    assert suggest_cut(OnSphere(6, 4), torch.randn(8, 6)) == 1.0


def test_suggest_cut_does_not_blame_an_eps_that_mattered_before_the_cut() -> None:
    net, x = projector(), 1e-3 * torch.randn(64, 6)
    c = suggest_cut(net, x, target_norm=0.1, scope="last")
    assert mean_norm(cut_init_(net, c, scope="last"), x) == pytest.approx(0.1, rel=1e-3)


def test_probes_leave_a_batch_alone_that_the_network_changes_in_place() -> None:
    net, x = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 4)), torch.randn(16, 6)
    before = x.clone()
    suggest_cut(net, x)
    scale_invariant_parameters(net, x)
    assert torch.equal(x, before)


def test_probes_refuse_an_output_of_nan() -> None:
    for probe in (suggest_cut, scale_invariant_parameters):
        with pytest.raises(ValueError, match="got 'NaN'"):
            probe(nn.Linear(2, 2), torch.full((3, 2), torch.nan))


def test_suggest_cut_says_when_no_c_reaches_the_target() -> None:
    x = torch.randn(16, 6)
    normalised = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8, elementwise_affine=False))
    with pytest.raises(ValueError, match=r"got 100\.0\. It is 2\.828 at c = 1 and still 2\.828"):
        suggest_cut(normalised, x, target_norm=100.0)
    with pytest.raises(ValueError, match=r"got 1\.0\. Only at c = .* eps of a normalisation layer"):
        suggest_cut(normalised, x, target_norm=1.0)
    biased = nn.Linear(6, 8)
    nn.init.ones_(biased.bias)
    with pytest.raises(ValueError, match="a bias that the scope leaves out"):
        suggest_cut(biased, x, target_norm=1.0, scope="weights")


def test_suggest_cut_refuses_a_bad_batch_target_or_output() -> None:
    with pytest.raises(ValueError, match="batch must be a tensor"):
        suggest_cut(projector(), [1, 2])
    with pytest.raises(ValueError, match="target_norm must be a positive finite number"):
        suggest_cut(projector(), torch.randn(4, 6), target_norm=0.0)
    with pytest.raises(ValueError, match="returns one tensor"):
        suggest_cut(nn.LSTM(6, 3), torch.randn(4, 6))


def test_scale_invariant_parameters_are_the_weights_before_batch_norm() -> None:
    names = scale_invariant_parameters(Residual(), torch.randn(4, 3, 6, 6))
    assert names == {"stem.weight", "conv1.weight", "conv2.weight"}


def test_scale_invariance_reaches_through_relu_but_not_through_a_bias() -> None:
    def net(bias: bool) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(4, 8, bias=bias), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8)
        )

    x = torch.randn(32, 4)
    assert scale_invariant_parameters(net(bias=False), x) == {"0.weight", "2.weight"}
    assert scale_invariant_parameters(net(bias=True), x) == {"2.weight"}


def test_scale_invariance_is_not_seen_where_the_scale_is_felt() -> None:
    attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    assert scale_invariant_parameters(attention, torch.randn(4, 5, 8)) == set()
    saturating = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    assert scale_invariant_parameters(saturating, torch.randn(16, 4)) == set()


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_scale_invariance_does_not_depend_on_the_inputs_scale(scale: float) -> None:
    x = scale * torch.randn(32, 6)
    assert scale_invariant_parameters(projector().eval(), x) == {"0.weight"}


def test_scale_invariance_of_a_spectrally_normalised_layer_is_in_its_weight() -> None:
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3, bias=False))
    names = scale_invariant_parameters(layer, torch.randn(8, 4))
    assert names == {"parametrizations.weight.original"}


def test_scale_invariance_of_a_weight_normalised_layer_is_in_its_direction() -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    names = scale_invariant_parameters(layer, torch.randn(8, 4))
    assert names == {"parametrizations.weight.original1"}


def test_cutting_scale_invariant_weights_keeps_embeddings_and_raises_their_learning_rate() -> None:
    x, c = torch.randn(32, 6, dtype=torch.float64), 4.0
    net = projector().double().train()
    net[3] = nn.Identity()
    names = scale_invariant_parameters(net, x)
    assert names == {"0.weight"}
    cut = cut_init_(copy.deepcopy(net), c, scope=names)
    z, z_cut = net(x), cut(x)
    assert ((z - z_cut).norm() / z.norm()).item() < 1e-3  # batch norm's eps
    z.square().sum().backward()
    z_cut.square().sum().backward()
    # one step turns the weight by lr |grad| / |w|, which grows c^2-fold, as lr / |w|^2 does
    turn = net[0].weight.grad.norm() / net[0].weight.detach().norm()
    turn_cut = cut[0].weight.grad.norm() / cut[0].weight.detach().norm()
    assert (turn_cut / turn).item() == pytest.approx(c**2, rel=1e-2)


def test_scale_invariant_parameters_touches_neither_module_nor_random_state() -> None:
    net, x = Residual().eval(), torch.randn(4, 3, 6, 6)
    before, rng = copy.deepcopy(net.state_dict()), torch.random.get_rng_state()
    scale_invariant_parameters(net, x)
    assert not net.training
    assert torch.equal(torch.random.get_rng_state(), rng)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
