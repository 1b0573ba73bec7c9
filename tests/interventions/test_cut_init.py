"""cut_init_: what it cuts, how often, and what it refuses."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn

from normscope import cut_init_


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 8), nn.Linear(8, 2)
    )


def parameters(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def cut_names(module: nn.Module, before: dict[str, Tensor], c: float) -> set[str]:
    """The parameters that are now 1/c of what they were; the others must not have changed."""
    names = set()
    for name, p in module.named_parameters():
        if not torch.equal(p, before[name]):
            torch.testing.assert_close(p.detach(), before[name] / c)
            names.add(name)
    return names


@pytest.fixture
def net() -> nn.Sequential:
    net = network()
    with torch.no_grad():
        for p in net.parameters():
            p.normal_()
    return net


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("weights", {"0.weight", "3.weight", "4.weight"}),
        ("last", {"4.weight", "4.bias"}),
        ({"0.weight", "3.bias"}, {"0.weight", "3.bias"}),
        (["1.weight"], {"1.weight"}),
    ],
)
def test_cut_init_cuts_what_is_in_scope_and_nothing_else(net, scope, expected) -> None:
    before = parameters(net)
    assert cut_init_(net, c=4.0, scope=scope) is net
    assert cut_names(net, before, 4.0) == expected


def test_cut_init_all_is_the_papers_listing(net) -> None:
    before = parameters(net)
    buffers = {name: b.clone() for name, b in net.named_buffers()}
    cut_init_(net)
    assert cut_names(net, before, 3.0) == set(before)
    for name, b in buffers.items():
        assert torch.equal(net.get_buffer(name), b)


def test_cut_init_last_divides_the_output_by_exactly_c(net) -> None:
    x = torch.randn(5, 3, 4, 4)
    before = net(x)
    torch.testing.assert_close(cut_init_(net, c=8.0, scope="last")(x), before / 8)


def test_cut_init_weights_leaves_norm_layers_of_any_author_alone() -> None:
    class MyRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2))

    class NormalisedHead(nn.Linear):
        pass

    net = nn.Sequential(
        NormalisedHead(2, 2), MyRMSNorm(), nn.MultiheadAttention(2, 1), nn.LayerNorm([2, 2])
    )
    before = parameters(net)
    names = cut_names(cut_init_(net, scope="weights"), before, 3.0)
    assert names == {"0.weight", "2.in_proj_weight", "2.out_proj.weight"}


def tied_as_one_object() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = net[0].weight
    return net


def tied_through_storage() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[1].weight = nn.Parameter(net[0].weight.detach().t())
    return net


@pytest.mark.parametrize("scope", ["all", "weights", {"0.weight", "1.weight"}, {"1.weight"}])
@pytest.mark.parametrize("tied", [tied_as_one_object, tied_through_storage])
def test_cut_init_cuts_a_tied_weight_once_and_keeps_it_tied(tied, scope) -> None:
    net = tied()
    before = net[0].weight.detach().clone()
    cut_init_(net, c=4.0, scope=scope)
    torch.testing.assert_close(net[0].weight.detach(), before / 4)
    assert net[0].weight.data_ptr() == net[1].weight.data_ptr()


def test_cut_init_cuts_each_part_of_a_shared_flat_buffer_once() -> None:
    flat = torch.ones(6)
    net = nn.ParameterDict({"a": nn.Parameter(flat[:2]), "b": nn.Parameter(flat[2:])})
    cut_init_(net, c=2.0)
    assert torch.equal(flat, torch.full((6,), 0.5))


def test_cut_init_changes_nothing_when_it_fails() -> None:
    named_alike = nn.Linear(2, 2)
    named_alike.cut_init_c = 1
    expanded = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    expanded[1].weight = nn.Parameter(torch.randn(1, 4).expand(4, 4))
    for net in (named_alike, expanded):
        before = parameters(net)
        with pytest.raises((KeyError, ValueError)):
            cut_init_(net)
        assert cut_names(net, before, 1.0) == set()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dynamo's own
@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile])
def test_the_record_of_a_cut_wrapper_is_in_the_networks_own_state_dict(wrap) -> None:
    net = network()
    cut_init_(wrap(net))
    assert "cut_init_c" in net.state_dict()
    with pytest.raises(RuntimeError, match="has been cut already"):
        cut_init_(net)


def test_cut_init_refuses_parameters_that_share_part_of_their_memory() -> None:
    flat = torch.ones(6)
    net = nn.ParameterDict({"a": nn.Parameter(flat[:4]), "b": nn.Parameter(flat[2:])})
    with pytest.raises(ValueError, match="free of partly shared parameters, got 'b and a'"):
        cut_init_(net)
    assert torch.equal(flat, torch.ones(6))


def through_state_dict(net: nn.Sequential) -> nn.Sequential:
    """Saved and loaded in the order of the library: construct, cut, load."""
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    fresh = cut_init_(network())
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


@pytest.mark.parametrize(
    "travel",
    [lambda net: net, copy.deepcopy, through_state_dict, lambda net: net[3], nn.Sequential],
    ids=["same", "copy", "state_dict", "part", "whole"],
)
def test_cut_init_refuses_a_second_cut(net, travel) -> None:
    cut = travel(cut_init_(net))
    before = parameters(cut)
    with pytest.raises(RuntimeError, match="has been cut already"):
        cut_init_(cut)
    assert cut_names(cut, before, 1.0) == set()


def test_a_cut_state_does_not_load_into_an_uncut_network_unnoticed(net) -> None:
    state = cut_init_(net, c=9.0).state_dict()
    assert state["cut_init_c"] == 9
    with pytest.raises(RuntimeError, match=r"Unexpected key.*cut_init_c"):
        network().load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Missing key.*cut_init_c"):
        net.load_state_dict(network().state_dict())


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_cut_init_refuses_modules_without_values() -> None:
    with torch.device("meta"):
        meta = nn.Linear(2, 2)
    for module in (meta, nn.LazyLinear(2)):
        with pytest.raises(ValueError, match="module must be initialised, got 'weight without"):
            cut_init_(module)


@pytest.mark.parametrize("c", [0, -3.0, float("inf"), float("nan"), "3", True])
def test_cut_init_refuses_a_divisor_that_is_not_positive_and_finite(net, c) -> None:
    before = parameters(net)
    with pytest.raises(ValueError, match="c must be a positive finite number"):
        cut_init_(net, c=c)
    assert cut_names(net, before, 1.0) == set()


def test_cut_init_names_what_is_wrong_with_a_scope(net) -> None:
    with pytest.raises(ValueError, match="scope must be 'all', 'weights', 'last' or a set"):
        cut_init_(net, scope="first")
    with pytest.raises(ValueError, match=r"names of the module's parameters, got '3.wieght'.*3\."):
        cut_init_(net, scope={"3.wieght"})
    with pytest.raises(ValueError, match="scope must be"):
        cut_init_(net, scope=None)
    with pytest.raises(ValueError, match=r"There is no nn\.Linear"):
        cut_init_(nn.Conv2d(3, 3, 1), scope="last")
    with pytest.raises(ValueError, match="a module with parameters in scope"):
        cut_init_(nn.ReLU())


def test_cut_init_keeps_dtype_and_leaves_integer_parameters_alone() -> None:
    net = nn.Linear(2, 2).half()
    net.codes = nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)
    cut_init_(net)
    assert net.weight.dtype == torch.float16
    assert torch.equal(net.codes, torch.ones(2, dtype=torch.int8))


def test_an_optimizer_made_before_the_cut_still_moves_the_parameters(net) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    cut_init_(net)
    before = parameters(net)
    net(torch.randn(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    assert not torch.equal(net[4].weight, before["4.weight"])
